"""Columns as CREATE TABLE and CREATE SOURCE write them: names, types, defaults, keys and watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.flow.names import check_columns
from millpond.operators.expressions import picture, storable_text
from millpond.plan.objects import SqlColumn
from millpond.sql.angle_types import has_angles, read_type
from millpond.sql.bind import told
from millpond.sql.dialects import type_text
from millpond.sql.parse import Piece, Words, ask, near_miss, parser, readable_text
from millpond.sql.types import quoted, restored

_AFTER_TYPE = (
    *("PRIMARY", "NOT", "NULL", "DEFAULT", "GENERATED", "AS", "UNIQUE", "REFERENCES", "CHECK"),
    *("COLLATE", "CONSTRAINT"),
)
_REFUSED = ("UNIQUE", "REFERENCES", "CHECK", "CONSTRAINT", "FOREIGN", "EXCLUDE", "COLLATE")

PROCTIME = "proctime()"  # what generates a column with the time of the epoch in which a row came
_INSTANT = "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True)
class Definition:
    columns: tuple[SqlColumn, ...]
    key: tuple[str, ...]
    time: str | None = None  # WATERMARK FOR
    delay_us: int = 0

    @property
    def schema(self) -> pa.Schema:
        return stored_schema(self.columns)

    @property
    def stamped(self) -> tuple[str, ...]:
        """The columns that hold when a row came."""
        return tuple(c.name for c in self.columns if c.generated == PROCTIME)


def read_columns(inner: Piece) -> Definition:
    """What stands in the brackets of CREATE TABLE."""
    columns: list[SqlColumn] = []
    key: tuple[str, ...] = ()
    mark: tuple[str, Piece] | None = None
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
                hint=near_miss(name, list(known.values())),
            )
    key = tuple(known[k.lower()] for k in key)
    made = tuple(_required(c) if c.name in key else c for c in columns)
    check_expressions(made)
    if mark is None:
        return Definition(made, key)
    time = known[mark[0].lower()]
    return Definition(made, key, time, _delay_us(made, time, mark[1]))


def _one_key(part: Piece, old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    if old:
        part.fail("a table has one primary key")
    return new


def _required(column: SqlColumn) -> SqlColumn:
    return SqlColumn(column.name, column.type, column.default, column.generated, True)


def read_column(words: Words) -> tuple[SqlColumn, bool]:
    piece = words.piece
    name = words.name("name of a column")
    end = next((n for n in piece.outside(words.at, types=True) if piece.word(n) in _AFTER_TYPE), len(piece))
    by_clock = piece.has(end, "AS", "PROCTIME")
    if end == words.at and not by_clock:
        words.fail(f"the type of column {name!r} is missing")
    kind = type_of(piece.part(words.at, end)) if end > words.at else _INSTANT
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
            ends = (n for n in piece.outside(words.at) if n > words.at and piece.word(n) in _AFTER_TYPE[:4])
            end = next(ends, len(piece))
            if end == words.at:
                words.fail(f"the default of column {name!r} is missing")
            default = readable_text(f"select {piece.part(words.at, end).sql}", piece.dialect)[7:]
            words.at = end
        elif words.take("GENERATED", "ALWAYS", "AS") or words.take("AS"):
            if by_clock:
                inner, words.at = piece.part(words.at, words.at + 3), words.at + 3
            else:
                inner, words.at = piece.bracket(words.at)
            generated = readable_text(f"select {inner.sql}", piece.dialect)[7:]
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


def type_of(piece: Piece) -> str:
    """DuckDB's logical type for a type as people write it."""
    said = piece.sql
    if piece.word(0) in ("SERIAL", "BIGSERIAL", "SMALLSERIAL"):
        piece.fail(f"{said} is not supported", 0, "give the number with each row")
    if has_angles(piece):
        return _known(piece, [read_type(piece, type_of)])
    return _known(piece, _spellings(said, piece.dialect))


def _known(piece: Piece, spellings: Sequence[str]) -> str:
    """DuckDB's name for a type: that of the first spelling it knows."""
    failed: duckdb.Error | None = None
    for text in spellings:
        try:
            found = str(parser().sql(f"select cast(null as {text}) as c").types[0])
        except duckdb.Error as error:
            failed = failed or error
            continue
        return found
    assert failed is not None
    problem = told(failed, piece.sql, len("select cast(null as "))
    at = len(piece.text[: piece.start].encode())
    raise InvalidError(
        f"no type named {piece.sql}",
        detail="in the statement\n" + picture(piece.text, (at, len(piece.sql.encode()))),
        hint=problem.hint,
    ) from failed


def _spellings(said: str, dialect: str) -> list[str]:
    found = [said] if dialect in ("postgres", "duckdb") else []
    try:
        found.append(type_text(said, dialect))
    except Exception:  # it is DuckDB that tells what is wrong with a type
        return found or [said]
    return found


def stored_schema(columns: Sequence[SqlColumn]) -> pa.Schema:
    """Arrow's types for rows of these columns, as we keep them."""
    listed = ", ".join(f"cast(null as {_held(c.type)}) as {quoted(c.held)}" for c in columns)
    schema = parser().sql(f"select {listed} limit 0").to_arrow_table().schema
    return pa.schema([pa.field(f.name, _utc(f.type)) for f in schema])


def _held(kind: str) -> str:
    # An interval is text in the state, as everywhere: equal ones are written in several ways.
    return storable_text(kind.replace("INTERVAL", "VARCHAR")) if restored(kind) else kind


def _utc(kind: pa.DataType) -> pa.DataType:
    """Instants are kept in UTC, whatever zone the session of DuckDB has."""
    return pa.timestamp(kind.unit, tz="UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


# -- expressions -----------------------------------------------------------------------


def check_expressions(columns: Sequence[SqlColumn]) -> None:
    """Defaults stand alone; generated columns read the others."""
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
                raise told(error, sql, len("prepare checked as ")) from error


def _delay_us(columns: Sequence[SqlColumn], time: str, piece: Piece) -> int:
    """How far a watermark is behind its column: the same for every row, or it is refused."""
    kind = next(c.type for c in columns if c.name == time)
    if not kind.startswith("TIMESTAMP"):
        piece.fail(
            f"the time of a watermark must be a timestamp, column {time!r} is {kind}", 0, "cast it in a view"
        )
    sql = readable_text(f"select {piece.sql}", piece.dialect)[7:]
    found = []
    for at in ("2024-01-01", "2024-07-15 12:34:56"):
        row = f"select cast(timestamp '{at}' as {kind}) as {quoted(time)}"
        asked = f"select epoch_us({quoted(time)}) - epoch_us({sql}) from ({row})"
        try:
            found.append(ask(asked))
        except duckdb.Error as error:
            raise told(error, asked) from error
    if found[0] != found[1] or found[0] is None:
        piece.fail("a watermark is a time column minus an interval", 0, f"{time} - INTERVAL '5 seconds'")
    return int(found[0])
