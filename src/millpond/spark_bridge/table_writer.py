"""Writes DataFrames into a table of a pond, through the inbox.

Law: a batch is one entry of the inbox, so all its rows are in one epoch or none is.  Tasks return their rows
to the driver and write nothing; a batch of which one task fails leaves nothing.  The entry has the id of the
streaming query and the number of the batch, and the pond executes each batch once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from millpond.control.inbox_sender import InboxSender
from millpond.errors import InvalidError, UnavailableError
from millpond.pond.rows import entry, table_rows, table_step
from millpond.spark_bridge.options import SparkOptions, Use
from millpond.spark_bridge.pond_location import opened
from millpond.spark_bridge.spark_types import arrow_schema
from millpond.state.request_ids import NumberedRequest, args_of, is_repeated

TASK_BYTES_MAX = 256 << 20  # of the rows of one task, which travel through the driver
QUERY_ID = "sql.streaming.queryId"  # Spark sets this property for the tasks of a streaming query


@dataclass(frozen=True)
class TaskRows(WriterCommitMessage):
    """The rows of one task, as an Arrow stream; empty if it has none."""

    rows: bytes
    query: str | None = None


class TableBatchWriter(DataSourceArrowWriter):
    """Inserts the rows of a DataFrame as one entry of the inbox."""

    def __init__(self, options: SparkOptions, schema: StructType, overwrite: bool) -> None:
        self.target = Target(options, schema, overwrite, "write")

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        return self.target.collected(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        client = self.target.options.get("client")
        if client is None:
            self.target.insert(messages, None)
        else:
            number = self.target.options.number("batch", -1, 0)
            self.target.insert(messages, NumberedRequest(client, number))


class TableStreamWriter(DataSourceStreamArrowWriter):
    """Inserts each batch of a streaming query as one entry of the inbox."""

    def __init__(self, options: SparkOptions, schema: StructType, overwrite: bool) -> None:
        self.target = Target(options, schema, overwrite, "writeStream")

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        return self.target.collected(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        queries = {message.query for message in messages if isinstance(message, TaskRows)}
        if not queries:
            return  # the batch has no tasks, so it has no rows
        if len(queries) > 1 or None in queries:
            raise UnavailableError(
                "the tasks of a batch do not know the id of their streaming query", detail=f"ids: {queries}"
            )
        self.target.insert(messages, NumberedRequest(f"spark/{queries.pop()}/{self.target.table}", batchId))


class Target:
    """The table that a DataFrame is written to."""

    def __init__(self, options: SparkOptions, schema: StructType, overwrite: bool, use: Use) -> None:
        options.require_use(use)
        if overwrite:
            raise InvalidError(
                "a table of a pond cannot be overwritten by Spark",
                hint='write with mode("append"); in a stream, with outputMode("append") or ("update")',
            )
        if (options.get("client") is None) != (options.get("batch") is None):
            raise InvalidError("the options 'client' and 'batch' need each other")
        self.options = options
        self.use: Use = use
        self.table = options.text("table", use)
        self.schema = schema
        self.encoded(arrow_schema(schema).empty_table())  # a table that cannot take the rows is refused now

    def encoded(self, rows: pa.Table) -> tuple[dict[str, Any], bytes]:
        with opened(self.options, self.use) as reader:
            plan = reader.plan_of(reader.head())
        step = table_step(plan, self.table)
        return entry(plan, step, table_rows(plan, step, rows), 1)

    def collected(self, batches: Iterator[Any]) -> TaskRows:
        """The rows of a task, which the driver inserts when all tasks are done."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        sink, size = pa.BufferOutputStream(), 0
        writer = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                writer = pa.ipc.new_stream(
                    sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
                )
            writer.write_batch(batch)
            size = sink.tell()
            if size > TASK_BYTES_MAX:
                raise InvalidError(
                    "too many rows in one write: they are inserted as one entry",
                    detail=f"one task has more than {TASK_BYTES_MAX >> 20} MiB",
                    hint="write fewer rows at a time, or read the DataFrame with pond.stream(name, df)",
                )
        if writer is None:
            return TaskRows(b"", query)
        writer.close()
        return TaskRows(sink.getvalue().to_pybytes(), query)

    def insert(self, messages: Sequence[WriterCommitMessage | None], request: NumberedRequest | None) -> None:
        """Append the rows of all tasks as one entry, unless the pond has executed this batch."""
        parts = [
            pa.ipc.open_stream(pa.py_buffer(message.rows)).read_all()
            for message in messages
            if isinstance(message, TaskRows) and message.rows
        ]
        if not parts:
            return
        args, payload = self.encoded(pa.concat_tables(parts))
        with opened(self.options, self.use) as reader:
            if request is not None:
                if is_repeated(reader.store, reader.head().clients, request):
                    return
                args = {**args, **args_of(request)}
            InboxSender(reader.store).append("rows", args, payload)
