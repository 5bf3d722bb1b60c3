"""Writes the changes of a view to a table of any database with a JDBC driver, through Spark, at least once.

Spark writes the partitions of a DataFrame in transactions of their own, and no row of progress can be part of
them.  So a delivery that fails in the middle, or a process that dies after it, writes rows again.
Law 7: a changelog has the epoch and the number of each change, by which the target can remove what came
twice; `complete` replaces the table, so repeating it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from millpond.arguments.call_errors import checked
from millpond.errors import InvalidError, UnavailableError
from millpond.masking import masked
from millpond.plan.sink_settings import Guarantee, SinkMode
from millpond.secret_references import check_references, resolved
from millpond.sinks.dataframes import running_session, to_spark
from millpond.sinks.delivery import Delivery, RefusedRow, SinkBinding, row_text

REFUSED = ("22", "23")  # classes of SQLSTATE: wrong values, broken constraints
_CAUSES_MAX = 20


@checked
@dataclass(frozen=True)
class JdbcSink:
    """A table behind a JDBC url, such as ``"jdbc:postgresql://db/shop"``.

    `options` are those of Spark's JDBC writer: ``user``, ``password``, ``driver``, ``batchsize``,
    ``createTableOptions`` …; write passwords as ``${env:NAME}``.  The driver's jar must be in the Spark
    session (``spark.jars`` or ``spark.jars.packages``).
    """

    url: str = field(repr=False)
    table: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    guarantee: ClassVar[Guarantee] = "at_least_once"
    modes: ClassVar[tuple[SinkMode, ...]] = ("changelog", "append", "complete")
    columns_by_name: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.startswith("jdbc:"):
            raise InvalidError(
                "a JdbcSink needs a JDBC url", detail=f"got {masked(str(self.url))!r}", hint="jdbc:…://…"
            )
        if not isinstance(self.table, str) or not self.table:
            raise InvalidError("a JdbcSink needs the name of a table", detail=f"got {self.table!r}")
        options = self.options.items() if isinstance(self.options, dict) else self.options
        object.__setattr__(self, "options", tuple((str(k), str(v)) for k, v in options))
        for text in (self.url, *(value for _, value in self.options)):
            check_references(text)
        reserved = [name for name, _ in self.options if name.lower() in ("url", "dbtable", "query")]
        if reserved:
            raise InvalidError(f"a JdbcSink has no option {reserved[0]!r}", hint="JdbcSink(url, table)")

    def open(self, binding: SinkBinding) -> JdbcWriter:
        return JdbcWriter(self, binding)


class JdbcWriter:
    def __init__(self, sink: JdbcSink, binding: SinkBinding) -> None:
        self._url = resolved(sink.url)
        self._options = {name: resolved(value) for name, value in sink.options}
        self._table, self._mode = sink.table, binding.mode

    def write(self, delivery: Delivery) -> Sequence[RefusedRow]:
        rows, complete = delivery.rows, self._mode == "complete"
        if not rows.num_rows and not complete:
            return ()
        try:
            self._save(rows, "overwrite" if complete else "append")
            return ()
        except _RefusedError:
            if complete:
                self._save(rows.slice(0, 0), "overwrite")
        refused = self._append(rows)
        return [RefusedRow(row_text(row.to_pylist()[0]), reason) for row, reason in refused]

    def _append(self, rows: pa.Table) -> list[tuple[pa.Table, str]]:
        """Append rows; those that the target refuses are found in smaller and smaller parts of them."""
        try:
            self._save(rows, "append", together=True)
            return []
        except _RefusedError as error:
            if rows.num_rows == 1:
                return [(rows, error.reason)]
        half = rows.num_rows // 2
        return [*self._append(rows.slice(0, half)), *self._append(rows.slice(half))]

    def _save(self, rows: pa.Table, how: str, *, together: bool = False) -> None:
        """Write rows; `together` in one transaction."""
        frame = to_spark(rows, running_session())
        frame = frame.coalesce(1) if together else frame
        writer: Any = frame.write.format("jdbc").option("url", self._url).option("dbtable", self._table)
        writer = writer.options(**{"truncate": "true", **self._options})
        try:
            writer.mode(how).save()
        except Exception as error:  # pyspark raises its own kinds, which differ between versions
            raise _failed(error) from None


class _RefusedError(Exception):
    """The database refuses a row: its values are wrong, or it breaks a constraint."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _failed(error: Exception) -> Exception:
    """The error without the trace of the JVM, and without secrets."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    missing = [line for line in lines if "No suitable driver" in line or "ClassNotFoundException" in line]
    if missing:
        return InvalidError(
            "Spark has no JDBC driver for this database",
            detail=missing[0].removeprefix("Caused by: "),
            hint="add its jar: spark.jars.packages=org.postgresql:postgresql:42.7.7, for example",
        )
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    said = causes[-1] if causes else (lines[0] if lines else type(error).__name__)
    state, told = _sql_state(getattr(error, "java_exception", None) or getattr(error, "_origin", None))
    if state[:2] in REFUSED:
        return _RefusedError(masked(told or said)[:500])
    return UnavailableError("the JDBC target failed", detail=said[:500])


def _sql_state(thrown: Any) -> tuple[str, str]:
    """The SQLSTATE and the message of the database's own error, the innermost one; empty if there is none."""
    from py4j.java_gateway import is_instance_of

    state, told = "", ""
    for _ in range(_CAUSES_MAX):
        if thrown is None:
            break
        following = None
        if is_instance_of(running_session()._sc._gateway, thrown, "java.sql.SQLException"):
            if thrown.getSQLState():
                state, told = str(thrown.getSQLState()), " ".join(str(thrown.getMessage()).split())
            following = thrown.getNextException()
        thrown = following or thrown.getCause()
    return state, told
