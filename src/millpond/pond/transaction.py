"""A transaction from Python: `with pond.transaction() as tx:`.

Law: all changes of the block are one inbox entry, executed in one epoch or not at all, when the block ends.
An exception that leaves the block undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.pond.rows import Rows, table_rows
from millpond.sql.binding.functions import inlined
from millpond.sql.dml.deferred_change import rows_change
from millpond.sql.result import Result
from millpond.sql.session import SqlSession
from millpond.sql.text.parameters import Params, canonical
from millpond.sql.text.parse import statements
from millpond.sql.transaction import SqlTransaction


class Transaction:
    """Reads and changes of one transaction; `Pond.transaction` makes it.

    >>> import millpond
    >>> pond = millpond.open("memory://", engine="inline")
    >>> _ = pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    >>> _ = pond.sql("INSERT INTO t VALUES (1, 10), (2, 20); FLUSH")
    """

    def __init__(self, session: SqlSession, *, read_only: bool = False) -> None:
        self.epoch: int | None = None  # that executed it, after the block
        self._session = session
        self._read_only = read_only

    def __enter__(self) -> Transaction:
        self._session.begin(read_only=self._read_only)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._session.transaction is None:
            return
        if kind is not None:
            self._session.rollback()
        else:
            self.epoch = self._session.commit_transaction()

    def sql(
        self,
        text: str,
        *,
        params: Params = None,
        dialect: str = "postgres",
        ansi: bool | None = None,
        **limits: Any,
    ) -> Result:
        """Run one or several statements; queries see one epoch and the changes of this transaction.

        >>> with pond.transaction() as tx:
        ...     _ = tx.sql("UPDATE t SET n = 7 WHERE id = 1")
        ...     tx.sql("SELECT n FROM t WHERE id = 1").fetchall()
        [(7,)]
        """
        return self._session.run(text, params, dialect, limits, ansi=ansi)

    def insert(self, table: str, rows: Rows) -> int:
        """Add rows to a table; a row with the same primary key is replaced.  Returns their number.

        >>> with pond.transaction() as tx:
        ...     tx.insert("t", [{"id": 3, "n": 30}])
        1
        """
        block = self._session.require_transaction("insert")
        with _failing(block):
            return self._insert(block, table, rows)

    def _insert(self, block: SqlTransaction, table: str, rows: Rows) -> int:
        relation = block.catalog.get(table, "table")
        assert relation.scan is not None
        plan = block.catalog.plan
        _, payload = self._session.host.row_entry(relation.scan, table_rows(plan, relation.scan, rows))
        with pa.ipc.open_stream(payload) as stream:
            encoded = stream.read_all().drop_columns(["_w"])
        return block.change(rows_change(relation, encoded)).count

    def require(self, sql: str, message: str | None = None, *, params: Params = None) -> None:
        """Abort with ConflictError unless the only value of a query is true.

        It is checked now, and again when the transaction is executed.

        >>> with pond.transaction() as tx:
        ...     tx.require("SELECT n >= 5 FROM t WHERE id = ?", "not enough", params=[1])
        ...     _ = tx.sql("UPDATE t SET n = n - 5 WHERE id = ?", params=[1])
        """
        block = self._session.require_transaction("require")
        with _failing(block):
            parsed = statements(sql, "postgres")
            if len(parsed) != 1:
                raise InvalidError("a condition is one query", detail=f"got {len(parsed)} statements")
            text = canonical(parsed[0], params).sql
            block.require(inlined(text, block.catalog.objects).sql, message)


@contextmanager
def _failing(block: SqlTransaction) -> Iterator[None]:
    """After an exception inside, the transaction cannot be committed."""
    try:
        yield
    except BaseException:
        block.failed = True
        raise
