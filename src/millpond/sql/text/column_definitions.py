"""Parses the columns of CREATE TABLE and CREATE SOURCE: names, types, defaults, keys and watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.flow.names import check_columns
from millpond.kernels.expressions import picture, storable_text
from millpond.plan.objects import SqlColumn
from millpond.sql.binding.bind import as_user_error
from millpond.sql.binding.types import quoted, restored
from millpond.sql.text.angle_types import has_angles, read_type
from millpond.sql.text.dialects import type_text
from millpond.sql.text.parse import SqlFragment, Words, closest_name, parser, readable_text
from millpond.sql.text.watermark_clause import WatermarkClause, read_watermark

_AFTER_TYPE = (
    *("PRIMARY", "NOT", "NULL", "DEFAULT", "GENERATED", "AS", "UNIQUE", "REFERENCES", "CHECK"),
    *("COLLATE", "CONSTRAINT"),
)
_REFUSED = ("UNIQUE", "REFERENCES", "CHECK", "CONSTRAINT", "FOREIGN", "EXCLUDE", "COLLATE")

PROCTIME = "proctime()"  # generates a column with the time of the epoch in which a row arrived
_INSTANT = "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True)
class Definition:
    columns: tuple[SqlColumn, ...]
    key: tuple[str, ...]
    clause: WatermarkClause | None = None  # WATERMARK FOR

    @property
    def time(self) -> str | None:
        """The column of WATERMARK FOR."""
        return None if self.clause is None else self.clause.made.time

    @property
    def schema(self) -> pa.Schema:
        return stored_schema(self.columns)

    @property
    def stamped(self) -> tuple[str, ...]:
        """The processing-time columns."""
        return tuple(c.name for c in self.columns if c.generated == PROCTIME)


def read_columns(inner: SqlFragment) -> Definition:
    """Parse the column list of CREATE TABLE."""
    columns: list[SqlColumn] = []
    key: tuple[str, ...] = ()
    mark: tuple[str, SqlFragment] | None = None
    for number, part in enumerate(inner.split(types=True) if inner.tokens else []):
        words = Words(part)
        if not part.tokens:
            commas = [n for n in inner.outside(types=True) if inner.word(n) == ","]
            if number == len(commas):
                inner.fail("no column follows this comma", commas[-1], "remove the comma, or add a column")
            inner.fail("a column is missing before this comma", commas[number])
        if words.take("PRIMARY", "KEY"):
            key = _one_key(part, key, tuple(words.names()))
            words.end()
        elif words.take("WATERMARK", "FOR"):
            time = words.name("time column")
            words.need("AS")
            mark = (time, words.rest)
        elif part.has(0, "CONSTRAINT") or (part.word(0) in _REFUSED and part.word(1) in ("KEY", "(")):
            part.fail(f"{part.word(0)} is not supported", 0, "tables have PRIMARY KEY and NOT NULL")
        else:
            column, is_key = read_column(words)
            if any(c.name.lower() == column.name.lower() for c in columns):
                part.fail(f"column {column.name!r} is defined twice")
            columns.append(column)
            if is_key:
                key = _one_key(part, key, (column.name,))
    if not columns:
        inner.fail("a table needs a column")
    check_columns([c.name for c in columns], "the table")
    known = {c.name.lower(): c.name for c in columns}
    for name in (*key, *([mark[0]] if mark else [])):
        if name.lower() not in known:
            raise InvalidError(
                f"there is no column {name!r}",
                detail=f"columns are {', '.join(known.values())}",
                hint=closest_name(name, list(known.values())),
            )
    key = tuple(known[k.lower()] for k in key)
    made = tuple(_required(c) if c.name in key else c for c in columns)
    check_expressions(made)
    if mark is None:
        return Definition(made, key)
    time = known[mark[0].lower()]
    return Definition(made, key, read_watermark(made, time, mark[1]))


def _one_key(part: SqlFragment, old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    if old:
        part.fail("a table has one primary key")
    return new


def _required(column: SqlColumn) -> SqlColumn:
    return SqlColumn(column.name, column.type, column.default, column.generated, True)


def read_column(words: Words) -> tuple[SqlColumn, bool]:
    fragment = words.fragment
    name = words.name("name of a column")
    end = next(
        (n for n in fragment.outside(words.at, types=True) if fragment.word(n) in _AFTER_TYPE), len(fragment)
    )
    by_clock = fragment.has(end, "AS", "PROCTIME")
    if end == words.at and not by_clock:
        words.fail(f"the type of column {name!r} is missing")
    kind = type_of(fragment.part(words.at, end)) if end > words.at else _INSTANT
    words.at = end
    default = generated = None
    required = is_key = False
    while not words.over:
        if words.take("PRIMARY", "KEY"):
            is_key = True
        elif words.take("NOT", "NULL"):
            required = True
        elif words.take("NULL"):
            continue
        elif words.take("DEFAULT"):
            ends = (
                n for n in fragment.outside(words.at) if n > words.at and fragment.word(n) in _AFTER_TYPE[:4]
            )
            end = next(ends, len(fragment))
            if end == words.at:
                words.fail(f"the default of column {name!r} is missing")
            default = readable_text(f"select {fragment.part(words.at, end).sql}", fragment.dialect)[7:]
            words.at = end
        elif words.take("GENERATED", "ALWAYS", "AS") or words.take("AS"):
            if by_clock:
                inner, words.at = fragment.part(words.at, words.at + 3), words.at + 3
            else:
                inner, words.at = fragment.bracket(words.at)
            generated = readable_text(f"select {inner.sql}", fragment.dialect)[7:]
            if generated.strip().lower() == PROCTIME:
                generated = PROCTIME
                if kind != _INSTANT:
                    words.fail(f"column {name!r} holds an instant", "leave its type out, or say TIMESTAMPTZ")
            _ = words.take("STORED") or words.take("VIRTUAL")
        else:
            hint = "PRIMARY KEY, NOT NULL, DEFAULT and GENERATED ALWAYS AS (…) are; a view can check values"
            words.fail("this is not supported in the definition of a column", hint)
    return SqlColumn(name, kind, default, generated, required), is_key


# -- types ---------------------------------------------------------------------------


def type_of(fragment: SqlFragment) -> str:
    """Return DuckDB's logical type for a type as users write it."""
    said = fragment.sql
    if fragment.word(0) in ("SERIAL", "BIGSERIAL", "SMALLSERIAL"):
        fragment.fail(f"{said} is not supported", 0, "give the number with each row")
    if has_angles(fragment):
        return _known(fragment, [read_type(fragment, type_of)])
    return _known(fragment, _spellings(said, fragment.dialect))


def _known(fragment: SqlFragment, spellings: Sequence[str]) -> str:
    """Return DuckDB's name for a type, from the first spelling that it knows."""
    failed: duckdb.Error | None = None
    for text in spellings:
        try:
            found = str(parser().sql(f"select cast(null as {text}) as c").types[0])
        except duckdb.Error as error:
            failed = failed or error
            continue
        return found
    assert failed is not None
    problem = as_user_error(failed, fragment.sql, len("select cast(null as "))
    at = len(fragment.text[: fragment.start].encode())
    raise InvalidError(
        f"no type named {fragment.sql}",
        detail="in the statement\n" + picture(fragment.text, (at, len(fragment.sql.encode()))),
        hint=problem.hint,
    ) from failed


def _spellings(said: str, dialect: str) -> list[str]:
    found = [said] if dialect in ("postgres", "duckdb") else []
    try:
        found.append(type_text(said, dialect))
    except Exception:  # DuckDB reports what is wrong with a type
        return found or [said]
    return found


def stored_schema(columns: Sequence[SqlColumn]) -> pa.Schema:
    """Return the Arrow schema in which rows of these columns are stored."""
    listed = ", ".join(f"cast(null as {_held(c.type)}) as {quoted(c.held)}" for c in columns)
    schema = parser().sql(f"select {listed} limit 0").to_arrow_table().schema
    return pa.schema([pa.field(f.name, _utc(f.type)) for f in schema])


def _held(kind: str) -> str:
    # The state stores intervals as text: equal intervals can be written in several ways.
    return storable_text(kind.replace("INTERVAL", "VARCHAR")) if restored(kind) else kind


def _utc(kind: pa.DataType) -> pa.DataType:
    """Use UTC for stored instants, whatever time zone the DuckDB session has."""
    return pa.timestamp(kind.unit, tz="UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


# -- expressions -----------------------------------------------------------------------


def check_expressions(columns: Sequence[SqlColumn]) -> None:
    """Check that defaults read no columns, and that generated columns read only the others."""
    plain = ", ".join(f"cast(null as {c.type}) as {quoted(c.name)}" for c in columns if c.generated is None)
    for column in columns:
        for text, source in ((column.default, ""), (column.generated, f" from (select {plain or 'NULL'})")):
            if text is None or text == PROCTIME:
                continue
            sql = f"select cast(({text}) as {column.type}){source}"
            try:
                parser().execute(f"prepare checked as {sql}")
                parser().execute("deallocate checked")
                if not source:
                    parser().sql(sql).to_arrow_table()  # a default that fails would fail for every row
            except duckdb.Error as error:
                raise as_user_error(error, sql, len("prepare checked as ")) from error
