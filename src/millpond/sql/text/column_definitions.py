"""Parses the columns of CREATE TABLE and CREATE SOURCE: names, types, defaults, keys and watermarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from millpond.arguments.names import check_columns
from millpond.errors import InvalidError
from millpond.kernels.storable_types import storable_text
from millpond.plan.objects import SqlColumn, SqlConstraint, SqlIdentity
from millpond.sql.binding.bind import as_user_error
from millpond.sql.binding.declared_types import declared_type
from millpond.sql.binding.types import quoted, restored
from millpond.sql.text.duckdb_parser import equipped_parser, parser
from millpond.sql.text.duckdb_text import readable_expression
from millpond.sql.text.metadata_columns import IncludedColumn, cut_metadata
from millpond.sql.text.other_systems import refuse_options
from millpond.sql.text.parse import SqlFragment, Words, closest_name
from millpond.sql.text.type_names import SERIALS, type_of
from millpond.sql.text.watermark_clause import WatermarkClause, read_watermark

_AFTER_TYPE = (
    *("PRIMARY", "NOT", "NULL", "DEFAULT", "GENERATED", "AS", "UNIQUE", "REFERENCES", "CHECK"),
    *("COLLATE", "CONSTRAINT"),
)
_AFTER_DEFAULT = tuple(word for word in _AFTER_TYPE if word not in ("AS", "COLLATE"))
_AFTER_SHORT = (
    *("STORED", "VIRTUAL", "PRIMARY", "UNIQUE", "CHECK", "CONSTRAINT", "GENERATED", "REFERENCES", "DEFAULT"),
)
_REFUSED = {
    "REFERENCES": "MERGE or INSERT … SELECT … JOIN can leave out rows without a partner",
    "FOREIGN": "MERGE or INSERT … SELECT … JOIN can leave out rows without a partner",
    "EXCLUDE": "tables have PRIMARY KEY, UNIQUE, CHECK and NOT NULL",
}
PROCTIME = "proctime()"  # generates a column with the time of the epoch in which a row arrived
_INSTANT = "TIMESTAMP WITH TIME ZONE"


@dataclass(frozen=True)
class Definition:
    columns: tuple[SqlColumn, ...]
    key: tuple[str, ...]
    clause: WatermarkClause | None = None  # WATERMARK FOR
    constraints: tuple[SqlConstraint, ...] = ()  # those without a name get one later
    metadata: tuple[tuple[str, str], ...] = ()  # columns that are not in messages, and what they have

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


Like = Callable[[Words], Definition]  # reads what follows LIKE: the columns of a table


def read_columns(
    inner: SqlFragment, like: Like | None = None, included: Sequence[IncludedColumn] = ()
) -> Definition:
    """Parse the column list of CREATE TABLE; columns of INCLUDE follow them."""
    columns: list[SqlColumn] = []
    metadata: list[tuple[str, str]] = []
    key: tuple[str, ...] = ()
    mark: tuple[str, SqlFragment] | None = None
    rules: list[SqlConstraint] = []
    for number, part in enumerate(inner.split(types=True) if inner.tokens else []):
        words = Words(part)
        if not part.tokens:
            commas = [n for n in inner.outside(types=True) if inner.word(n) == ","]
            if number == len(commas):
                inner.fail("no column follows this comma", commas[-1], "remove the comma, or add a column")
            inner.fail("a column is missing before this comma", commas[number])
        called = words.name("name of the constraint") if words.take("CONSTRAINT") else ""
        if words.take("PRIMARY", "KEY"):
            key = _one_key(part, key, tuple(words.names()))
            refuse_options(words, "a constraint")
            words.end()
        elif part.has(words.at, "CHECK", "(") or part.has(words.at, "UNIQUE"):
            rules.append(read_rule(words, called))
            refuse_options(words, "a constraint")
            words.end()
        elif like is not None and words.take("LIKE"):
            copied = like(words)
            words.end()
            names = {c.name.lower() for c in columns}
            if twice := next((c for c in copied.columns if c.name.lower() in names), None):
                part.fail(f"column {twice.name!r} is defined twice")
            columns += copied.columns
            rules += copied.constraints
            key = _one_key(part, key, copied.key) if copied.key else key
        elif words.take("WATERMARK", "FOR"):
            if mark is not None:
                part.fail("a table has one watermark", 0, f"it has one for {mark[0]!r} already")
            time = words.name("time column")
            words.need("AS")
            mark = (time, words.rest)
        elif part.word(words.at) in _REFUSED and (called or part.word(words.at + 1) in ("KEY", "(", "USING")):
            words.fail(f"{part.word(words.at)} is not supported", _REFUSED[part.word(words.at)])
        elif called:
            words.fail("a constraint should stand here", "CHECK (…), UNIQUE (…) or PRIMARY KEY (…)")
        else:
            part, field = cut_metadata(part)
            column, is_key = read_column(Words(part), rules)
            if field is not None:
                metadata.append((column.name, field))
            if any(c.name.lower() == column.name.lower() for c in columns):
                part.fail(f"column {column.name!r} is defined twice")
            columns.append(column)
            if is_key:
                key = _one_key(part, key, (column.name,))
    if not columns:
        inner.fail("a table needs a column")
    for one in included:
        column, _ = read_column(Words(one.definition))
        columns.append(column)
        metadata.append((column.name, one.field))
    check_columns([c.name for c in columns], "the table")
    known = {c.name.lower(): c.name for c in columns}
    for name in (*key, *([mark[0]] if mark else []), *(c for rule in rules for c in rule.unique)):
        if name.lower() not in known:
            raise InvalidError(
                f"there is no column {name!r}",
                detail=f"columns are {', '.join(known.values())}",
                hint=closest_name(name, list(known.values())),
            )
    key = tuple(known[k.lower()] for k in key)
    made = tuple(replace(c, required=True) if c.name in key else c for c in columns)
    check_expressions(made)
    rules = [replace(r, unique=tuple(known[c.lower()] for c in r.unique)) for r in rules]
    for rule in rules:
        check_condition(made, rule)
    if mark is None:
        return Definition(made, key, None, tuple(rules), tuple(metadata))
    time = known[mark[0].lower()]
    clause = read_watermark(made, time, mark[1])
    return Definition(made, key, clause, tuple(rules), tuple(metadata))


def refuse_metadata(found: Definition | None, inner: SqlFragment, what: str) -> None:
    """Refuse columns with metadata where rows are not messages of Kafka."""
    if found is not None and found.metadata:
        name, field = found.metadata[0]
        inner.fail(
            f"METADATA and INCLUDE are not supported for {what}",
            0,
            f"column {name!r} should have the {field} of messages, which sources of Kafka have",
        )


def refuse_rules(found: Definition, inner: SqlFragment, what: str) -> None:
    """Refuse constraints and identity columns where rows come from elsewhere."""
    if found.constraints or any(c.identity is not None for c in found.columns):
        inner.fail(f"{what} has neither constraints nor identity columns", 0, "a view can check its rows")


def read_rule(words: Words, called: str, column: str | None = None) -> SqlConstraint:
    """Parse CHECK (…) or UNIQUE (…); of a column, UNIQUE names no columns."""
    fragment = words.fragment
    if words.take("UNIQUE"):
        if fragment.has(words.at, "NULLS"):
            refuse_options(words, "a constraint")
            words.need("NULLS", "DISTINCT")
        return SqlConstraint(called, unique=(column,) if column is not None else tuple(words.names()))
    words.need("CHECK")
    at = words.at
    inner, words.at = fragment.bracket(words.at)
    if not inner.tokens:
        fragment.fail("a condition should stand here", at)
    if "SELECT" in inner.words:
        fragment.fail("cannot use subquery in check constraint", at, "compare columns of the row only")
    for n, word in enumerate(inner.words):
        if word in _CHANGING and (inner.word(n + 1) == "(" or word.startswith(("CURRENT", "LOCAL"))):
            hint = "a condition must hold for a row for ever: compare columns of the row only"
            inner.fail(f"{word.lower()} gives another value each time, and cannot be part of CHECK", n, hint)
    words.take("NO", "INHERIT")
    return SqlConstraint(called, check=readable_expression(inner.sql, fragment.dialect))


_CHANGING = (
    *("NOW", "PROCTIME", "CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP"),
    *("CLOCK_TIMESTAMP", "TRANSACTION_TIMESTAMP", "RANDOM", "UUID", "GEN_RANDOM_UUID", "NEXTVAL", "TODAY"),
)


def _one_key(part: SqlFragment, old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    if old:
        part.fail("a table has one primary key")
    return new


def read_column(words: Words, rules: list[SqlConstraint] | None = None) -> tuple[SqlColumn, bool]:
    """Parse the definition of a column; its constraints are added to `rules`, which not all can have."""
    fragment = words.fragment
    name = words.name("name of a column")
    end = next(
        (n for n in fragment.outside(words.at, types=True) if fragment.word(n) in _AFTER_TYPE), len(fragment)
    )
    by_clock = fragment.has(end, "AS", "PROCTIME")
    if end == words.at and not by_clock:
        words.fail(f"the type of column {name!r} is missing")
    serial = SERIALS.get(fragment.word(words.at)) if rules is not None and end == words.at + 1 else None
    if serial is not None:
        kind, identity, declared = serial, SqlIdentity(False, ""), None
    else:
        said = fragment.part(words.at, end)
        kind = type_of(said) if said.tokens else _INSTANT
        declared = declared_type(said.sql) if said.tokens and said.dialect == "postgres" else None
        if "UNION(" in kind:
            words.fail("a value of type UNION cannot be stored", "use a struct with a field for each type")
        identity = None
    words.at = end
    default = generated = None
    required = is_key = False
    called = ""
    while not words.over:
        if words.take("CONSTRAINT"):
            called = words.name("name of the constraint")
        elif rules is not None and fragment.word(words.at) in ("CHECK", "UNIQUE"):
            rules.append(read_rule(words, called, name))
            called = ""
        elif words.take("PRIMARY", "KEY"):
            is_key = True
        elif words.take("NOT", "NULL"):
            required = True
        elif words.take("NULL"):
            continue
        elif words.take("DEFAULT"):
            ends = (
                n for n in fragment.outside(words.at) if n > words.at and fragment.word(n) in _AFTER_DEFAULT
            )
            end = next(ends, len(fragment))
            if end == words.at:
                words.fail(f"the default of column {name!r} is missing")
            default = readable_expression(fragment.part(words.at, end).sql, fragment.dialect)
            words.at = end
        elif rules is not None and _at_identity(fragment, words.at):
            identity = _read_identity(words, kind)
        elif (long := words.take("GENERATED", "ALWAYS", "AS")) or words.take("AS"):
            if by_clock:
                inner, words.at = fragment.part(words.at, words.at + 3), words.at + 3
            elif not long:
                end = next((n for n in fragment.outside(words.at) if _ends_short(fragment, n)), len(fragment))
                if end == words.at:
                    words.fail(f"the expression of column {name!r} is missing")
                inner, words.at = fragment.part(words.at, end), end
            else:
                inner, words.at = fragment.bracket(words.at)
            generated = readable_expression(inner.sql, fragment.dialect)
            if generated.strip().lower() == PROCTIME:
                generated = PROCTIME
                if kind != _INSTANT:
                    words.fail(f"column {name!r} holds an instant", "leave its type out, or say TIMESTAMPTZ")
            _ = words.take("STORED") or words.take("VIRTUAL")
        else:
            if fragment.word(words.at) in _REFUSED:
                words.fail(f"{fragment.word(words.at)} is not supported", _REFUSED[fragment.word(words.at)])
            refuse_options(words, "a column")
            hint = "PRIMARY KEY, NOT NULL, UNIQUE, CHECK, DEFAULT and GENERATED are"
            words.fail("this is not supported in the definition of a column", hint)
    if identity is not None and (default is not None or generated is not None):
        fragment.fail(f"column {name!r} cannot have both a default and an identity")
    required = required or identity is not None
    return SqlColumn(name, kind, default, generated, required, None, identity, declared), is_key


def _ends_short(fragment: SqlFragment, at: int) -> bool:
    """Does the expression of `name type AS expression` end before this word?"""
    word = fragment.word(at)
    if word in ("NOT", "NULL"):
        return at > 0 and fragment.word(at - 1) not in (
            "IS",
            "NOT",
            "AND",
            "OR",
            "THEN",
            "ELSE",
            "WHEN",
            "AS",
        )
    return word in _AFTER_SHORT


def _at_identity(fragment: SqlFragment, at: int) -> bool:
    return fragment.has(at, "GENERATED", "ALWAYS", "AS", "IDENTITY") or fragment.has(
        at, "GENERATED", "BY", "DEFAULT", "AS", "IDENTITY"
    )


def _read_identity(words: Words, kind: str) -> SqlIdentity:
    words.need("GENERATED")
    always = words.take("ALWAYS")
    _ = always or words.take("BY", "DEFAULT")
    words.need("AS", "IDENTITY")
    if kind not in SERIALS.values():
        words.at -= 1
        words.fail("identity column type must be smallint, integer, or bigint")
    start, increment = None, 1
    if words.fragment.word(words.at) == "(":
        inner, words.at = words.fragment.bracket(words.at)
        each = Words(inner)
        while not each.over:
            if each.take("START"):
                each.take("WITH")
                start = int(each.text())
            elif each.take("INCREMENT"):
                each.take("BY")
                increment = int(each.text())
            elif not (each.take("NO", "MINVALUE") or each.take("NO", "MAXVALUE") or each.take("NO", "CYCLE")):
                each.fail("this is not supported for an identity column", "START WITH and INCREMENT BY are")
        if increment == 0:
            inner.fail("INCREMENT must not be zero")
    return SqlIdentity(always, "", (1 if increment > 0 else -1) if start is None else start, increment)


def stored_schema(columns: Sequence[SqlColumn]) -> pa.Schema:
    """Return the Arrow schema in which rows of these columns are stored."""
    listed = ", ".join(f"cast(null as {_stored_type(c.type)}) as {quoted(c.stored_name)}" for c in columns)
    schema = parser().sql(f"select {listed} limit 0").to_arrow_table().schema
    return pa.schema([pa.field(f.name, _utc(f.type)) for f in schema])


def _stored_type(kind: str) -> str:
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
                equipped_parser(sql).execute(f"prepare checked as {sql}")
                parser().execute("deallocate checked")
                if not source:
                    parser().sql(sql).to_arrow_table()  # a default that fails would fail for every row
            except duckdb.Error as error:
                raise as_user_error(error, sql, len("prepare checked as ")) from error


def check_condition(columns: Sequence[SqlColumn], rule: SqlConstraint) -> None:
    """Check that the condition of a constraint reads only columns of the row, and is true or false."""
    if rule.check is None:
        return
    plain = ", ".join(f"cast(null as {c.type}) as {quoted(c.name)}" for c in columns)
    sql = f"select ({rule.check}) from (select {plain})"
    try:
        found = str(equipped_parser(sql).sql(sql).types[0])
    except duckdb.Error as error:
        raise as_user_error(error, sql) from error
    if found not in ("BOOLEAN", '"NULL"', "NULL"):
        raise InvalidError(
            f"argument of CHECK must be type boolean, not type {found.lower()}",
            detail=f"CHECK ({rule.check})",
        )
