"""The PyFlink job: a KeyedProcessFunction with value state; runs under the Python that has PyFlink.

The source is Flink's own Parquet reader and the sink its own discarding one, so Python does only the keyed
work; the key selector is Python too, as the API has it.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyflink.common import Configuration, Row, Types
from pyflink.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import Sink
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
OUTPUT = Types.ROW_NAMED(["auction", "n", "total"], [Types.LONG(), Types.LONG(), Types.LONG()])


class Count(KeyedProcessFunction):  # type: ignore[misc]
    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", PAIR))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        n, total = self.kept.value() or (0, 0)
        n, total = n + 1, total + value[1]
        self.kept.update((n, total))
        yield Row(value[0], n, total)


def bids(environment: StreamExecutionEnvironment, folder: str) -> DataStream:
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(
        "CREATE TABLE bids (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP(3)) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{folder}', 'format' = 'parquet')"
    )
    return tables.to_data_stream(tables.sql_query("SELECT auction, price FROM bids"))


def collected(rows: DataStream, folder: str) -> None:
    with rows.execute_and_collect() as found:
        kept = [tuple(row) for row in found]
    columns = [pa.array((row[i] for row in kept), pa.int64()) for i in range(3)]
    pq.write_table(pa.table(columns, names=["auction", "n", "total"]), f"{folder}/emitted.parquet")


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    configuration = Configuration()
    for name, value in task["settings"].items():
        configuration.set_string(name, value)
    configuration.set_string("execution.checkpointing.dir", Path(task["work"], "checkpoints").as_uri())
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    stream = bids(environment, task["input"])
    rows = stream.key_by(lambda bid: bid[0], Types.LONG()).process(Count(), OUTPUT)
    if task["collect"]:
        collected(rows, task["collect"])
        return
    discarding = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    rows.sink_to(Sink(discarding))
    environment.execute("keyed-state")


main()
