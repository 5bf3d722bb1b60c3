"""Writes the changes of a view to a table of PostgreSQL, exactly once.

Law 7: one transaction stores the rows and the epoch.  The row of the sink in `millpond_progress` is locked
first: a delivery whose epoch is already there changes nothing, and a coordinator with a smaller token than
the target has seen is refused.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments.call_errors import checked
from millpond.errors import ConflictError, InvalidError, UnavailableError
from millpond.masking import masked
from millpond.plan.sink_settings import EPOCH, NUMBER, Guarantee, SinkMode
from millpond.secret_references import check_references, resolved_address
from millpond.sinks.delivery import Delivery, RefusedRow, SinkBinding, row_text
from millpond.sinks.postgres_types import column_type, copied_columns, type_name
from millpond.sinks.row_changes import Upserts

PROGRESS, REFUSED = "millpond_progress", "millpond_refused"
NULLS_ARE_EQUAL = 150_000  # the version from which on NULL can equal NULL in a unique index
Refusal = tuple[pa.Table, str]  # a row and the reason


@checked
@dataclass(frozen=True)
class PostgresSink:
    """A table of PostgreSQL.

    `connection` is what libpq accepts, for example ``"host=db dbname=shop user=mill"``; passwords are
    references such as ``password=${env:DB_PASSWORD}``.  The table is created if it does not exist; otherwise
    its columns are checked, and missing ones are added.  Needs ``pip install "psycopg[binary]"``.
    """

    connection: str = field(repr=False)
    table: str = ""
    schema: str = "public"

    guarantee: ClassVar[Guarantee] = "exactly_once"
    modes: ClassVar[tuple[SinkMode, ...]] = ("upsert", "append", "changelog", "complete")
    columns_by_name: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.table, str) or not self.table:
            raise InvalidError("a PostgresSink needs the name of a table", detail=f"got {self.table!r}")
        if not isinstance(self.connection, str):
            raise InvalidError("the connection of a PostgresSink must be text")
        check_references(self.connection)

    def open(self, binding: SinkBinding) -> PostgresWriter:
        psycopg = _psycopg()
        try:
            con = psycopg.connect(resolved_address(self.connection), autocommit=True, connect_timeout=10)
        except psycopg.Error as error:
            raise _unavailable(error) from None
        try:
            return PostgresWriter(self, binding, con)
        except psycopg.Error as error:
            con.close()
            raise _unavailable(error) from None
        except BaseException:
            con.close()
            raise


class PostgresWriter:
    def __init__(self, sink: PostgresSink, binding: SinkBinding, con: Any) -> None:
        self._pg, self._sql = _psycopg(), importlib.import_module("psycopg.sql")
        self._sink, self._binding, self._con = sink, binding, con
        self._target = self._sql.Identifier(sink.schema, sink.table)
        self._columns = list(binding.written_schema)
        if binding.mode == "upsert":  # the operation is not stored
            self._columns = list(binding.schema)
        con.execute("SET client_min_messages = 'error'")
        with con.transaction():
            # Several sinks and coordinators may create the tables at the same time.
            con.execute("SELECT pg_advisory_xact_lock(hashtext('millpond'))")
            self._make_progress_tables()
            self._fence()
            self._make_table()

    def close(self) -> None:
        self._con.close()

    # -- the target -------------------------------------------------------------

    def _make_progress_tables(self) -> None:
        self._execute(
            "CREATE TABLE IF NOT EXISTS {progress} (pond text, sink text, epoch bigint NOT NULL,"
            " token bigint NOT NULL, PRIMARY KEY (pond, sink))"
        )
        self._execute(
            "CREATE TABLE IF NOT EXISTS {refused} (pond text, sink text, epoch bigint, row_text text,"
            " reason text, at timestamptz DEFAULT now())"
        )

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement on the target's own tables."""
        schema, sql = self._sink.schema, self._sql
        progress, refused = sql.Identifier(schema, PROGRESS), sql.Identifier(schema, REFUSED)
        return self._con.execute(sql.SQL(statement).format(progress=progress, refused=refused), values)

    def _fence(self) -> None:
        """Store the token, so that an older coordinator can write nothing any more."""
        binding = self._binding
        self._execute(
            "INSERT INTO {progress} AS p VALUES (%s, %s, -1, %s) ON CONFLICT (pond, sink)"
            " DO UPDATE SET token = greatest(p.token, excluded.token)",
            [binding.pond, binding.sink, binding.token],
        )

    def _make_table(self) -> None:
        """Create the table, or check its columns and add those that are missing."""
        sql, con = self._sql, self._con
        found = con.execute(
            "SELECT a.attname, t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
            " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped",
            [self._target.as_string(con)],
        ).fetchall()
        held = dict(found)
        if not held:
            parts = [self._definition(f) for f in self._columns]
            if self._key:
                unique = con.info.server_version >= NULLS_ARE_EQUAL and self._binding.mode == "upsert"
                names = sql.SQL(", ").join(map(sql.Identifier, self._key))
                rule = "UNIQUE NULLS NOT DISTINCT ({})" if unique else "PRIMARY KEY ({})"
                parts.append(sql.SQL(rule).format(names))
            made = sql.SQL("CREATE TABLE {} ({})").format(self._target, sql.SQL(", ").join(parts))
            con.execute(made)
            return
        for column in self._columns:
            if column.name not in held:
                con.execute(
                    sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(self._target, self._definition(column))
                )
            elif not type_name(column.type).takes(held[column.name]):
                raise InvalidError(
                    f"column {column.name!r} of table {self._sink.table!r} has another type",
                    detail=f"it is {held[column.name]}, and the view has {column.type}",
                    hint="change the column, or let the sink create a table of another name",
                )
        if self._key and not self._has_unique_index(self._key):
            raise InvalidError(
                f"table {self._sink.table!r} has no unique index on {', '.join(self._key)}",
                hint="an upsert needs one: CREATE UNIQUE INDEX ON … (…)",
            )

    def _has_unique_index(self, key: Sequence[str]) -> bool:
        rows = self._con.execute(
            "SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_index i"
            " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
            " WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL"
            " AND i.indexprs IS NULL GROUP BY i.indexrelid",
            [self._target.as_string(self._con)],
        ).fetchall()
        return sorted(key) in [names for (names,) in rows]

    @property
    def _key(self) -> tuple[str, ...]:
        """The primary key of the table."""
        if self._binding.mode == "changelog":
            return (EPOCH, NUMBER)
        return self._binding.key if self._binding.mode == "upsert" else ()

    def _definition(self, column: pa.Field) -> Any:
        sql = self._sql
        return sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column_type(column.type)))

    # -- deliveries -------------------------------------------------------------

    def write(self, delivery: Delivery) -> Sequence[RefusedRow]:
        try:
            with self._con.transaction():
                epoch = self._locked_epoch()
                if epoch >= delivery.epoch:
                    return self._refused_then(delivery)
                refused = self._apply(delivery)
                self._store(delivery, refused)
                return refused
        except self._pg.Error as error:
            raise _unavailable(error) from None

    def _locked_epoch(self) -> int:
        """The last epoch that the target has; other coordinators wait until this transaction ends."""
        binding = self._binding
        found = self._execute(
            "SELECT epoch, token FROM {progress} WHERE pond = %s AND sink = %s FOR UPDATE",
            [binding.pond, binding.sink],
        ).fetchone()
        if found is None:
            raise UnavailableError(f"the row of sink {binding.sink!r} in {PROGRESS} was deleted")
        if found[1] > binding.token:
            raise ConflictError(
                f"sink {binding.sink!r} belongs to another coordinator",
                detail=f"its token is {found[1]}, ours is {binding.token}",
            )
        return int(found[0])

    def _store(self, delivery: Delivery, refused: Sequence[RefusedRow]) -> None:
        binding = self._binding
        self._execute(
            "UPDATE {progress} SET epoch = %s, token = %s WHERE pond = %s AND sink = %s",
            [delivery.epoch, binding.token, binding.pond, binding.sink],
        )
        for row in refused:
            self._execute(
                "INSERT INTO {refused} VALUES (%s, %s, %s, %s, %s)",
                [binding.pond, binding.sink, delivery.epoch, row.row.replace("\0", "\\u0000"), row.reason],
            )

    def _refused_then(self, delivery: Delivery) -> list[RefusedRow]:
        binding = self._binding
        rows = self._execute(
            "SELECT row_text, reason FROM {refused} WHERE pond = %s AND sink = %s AND epoch = %s",
            [binding.pond, binding.sink, delivery.epoch],
        )
        return [RefusedRow(*row) for row in rows.fetchall()]

    def _apply(self, delivery: Delivery) -> list[RefusedRow]:
        match self._binding.mode:
            case "upsert":
                refused = self._upsert(delivery.upserts)
            case "complete":
                self._con.execute(self._sql.SQL("DELETE FROM {}").format(self._target))
                refused = self._insert(delivery.rows)
            case _:
                refused = self._insert(delivery.rows)
        return [RefusedRow(row_text(row.to_pylist()[0]), reason) for row, reason in refused]

    def _upsert(self, found: Upserts) -> list[Refusal]:
        names = list(self._binding.key)
        with_null = functools.reduce(pc.or_, [pc.is_null(found.put.column(name)) for name in names])
        # In a unique index of the user, NULL may differ from NULL: such a row would be added, not replaced.
        self._delete(pa.concat_tables([found.deleted, found.put.filter(with_null)]).select(names))
        refused = self._insert(_in_order(found.put, names))
        if refused:  # the row that the target has is no longer true
            self._delete(pa.concat_tables([row for row, _ in refused]).select(names))
        return refused

    def _delete(self, keys: pa.Table) -> None:
        """Delete rows by key; a key that the columns of the target cannot hold is not there."""
        if not keys.num_rows:
            return
        try:
            with self._con.transaction():  # a savepoint
                self._delete_all(keys)
            return
        except self._pg.DataError:
            if keys.num_rows == 1:
                return
        half = keys.num_rows // 2
        self._delete(keys.slice(0, half))
        self._delete(keys.slice(half))

    def _delete_all(self, keys: pa.Table) -> None:
        sql, names = self._sql, list(self._binding.key)
        temp = self._copied(keys, "millpond_keys")
        terms = sql.SQL(" AND ").join(
            sql.SQL("t.{0} IS NOT DISTINCT FROM d.{0}").format(sql.Identifier(name)) for name in names
        )
        plain = sql.SQL(" AND ").join(sql.SQL("t.{0} = d.{0}").format(sql.Identifier(n)) for n in names)
        has_null = any(keys.column(name).null_count for name in names)
        where = terms if has_null else plain
        delete = sql.SQL("DELETE FROM {} t USING {} d WHERE {}")
        self._con.execute(delete.format(self._target, temp, where))
        self._con.execute(sql.SQL("DROP TABLE {}").format(temp))

    def _insert(self, rows: pa.Table) -> list[Refusal]:
        """Insert rows; if the target refuses some, it is asked for smaller and smaller parts of them."""
        if not rows.num_rows:
            return []
        try:
            with self._con.transaction():  # a savepoint
                self._insert_all(rows)
            return []
        except (self._pg.DataError, self._pg.IntegrityError) as error:
            if rows.num_rows == 1:
                return [(rows, _reason(error))]
        half = rows.num_rows // 2
        return [*self._insert(rows.slice(0, half)), *self._insert(rows.slice(half))]

    def _insert_all(self, rows: pa.Table) -> None:
        sql = self._sql
        temp = self._copied(rows, "millpond_rows")
        names = sql.SQL(", ").join(sql.Identifier(name) for name in rows.column_names)
        insert = sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2}").format(self._target, names, temp)
        if self._binding.mode == "upsert":
            insert += self._on_conflict(rows.column_names)
        self._con.execute(insert)
        self._con.execute(sql.SQL("DROP TABLE {}").format(temp))

    def _on_conflict(self, names: Sequence[str]) -> Any:
        sql, key = self._sql, self._binding.key
        updates = [
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names if name not in key
        ]
        keys = sql.SQL(", ").join(map(sql.Identifier, key))
        act = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(updates)) if updates else sql.SQL("NOTHING")
        return sql.SQL(" ON CONFLICT ({}) DO {}").format(keys, act)

    def _copied(self, rows: pa.Table, name: str) -> Any:
        """A temporary table with these rows, in the types of the target."""
        sql = self._sql
        temp = sql.Identifier(name)
        names = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        self._con.execute(
            sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                temp, names, self._target
            )
        )
        columns = copied_columns(rows)
        with self._con.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN").format(temp, names)) as copy:
            for values in zip(*columns, strict=True):
                copy.write_row(values)
        return temp


def _in_order(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows in the order of their key, in which the server inserts them faster than in that of hashes."""
    try:
        return rows.sort_by([(name, "ascending") for name in key])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # a type without an order, such as a list
        return rows


def _psycopg() -> Any:
    try:
        return importlib.import_module("psycopg")
    except ImportError:
        raise InvalidError(
            "a PostgreSQL sink needs psycopg", hint='install it: pip install "psycopg[binary]"'
        ) from None


def _unavailable(error: Any) -> UnavailableError:
    """The error without the connection's secrets."""
    return UnavailableError("PostgreSQL failed", detail=masked(_reason(error)))


def _reason(error: Any) -> str:
    diagnosis = getattr(error, "diag", None)
    message = getattr(diagnosis, "message_primary", None) or str(error)
    detail = getattr(diagnosis, "message_detail", None)
    text = " ".join(f"{message}: {detail}".split() if detail else message.split())
    return text or type(error).__name__
