"""Calls of functions that people defined, written as the SQL that they mean.

Law: a function is its definition.  Where a text is read, each call is replaced by
the body over its arguments, once and for all: what was created with a function
keeps it as it was then, whatever becomes of the name.  No argument is caught by a
name of the body: a body that has names of its own (a query, a lambda) gets its
arguments as columns of a row beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.operators.python_function import PythonFunction
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.parse import OWN, Piece, near_miss, readable, tokens_of
from millpond.sql.refusal import pointing
from millpond.sql.types import quoted

SCALAR, TABLE, AGGREGATE = "scalar", "table", "aggregate"
KIND, CALLS, RETURNS, COLUMNS, STRICT = "kind", "calls", "returns", "columns", "strict"  # of its options
Options = dict[str, Any]

_ARGUMENT = re.compile(r'"millpond\.argument\.(\d+)"')
_PYTHON = re.compile(r'"([^"]+#[0-9a-f]{12})"\(')
_NOT_A_CALL = (".", "AS")  # in front of a name
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_WORDS = frozenset(
    [
        *(
            "ALL",
            "AND",
            "ANY",
            "ASOF",
            "BETWEEN",
            "BY",
            "CASE",
            "CROSS",
            "DISTINCT",
            "ELSE",
            "EXCEPT",
            "FILTER",
        ),
        *("FROM", "FULL", "GLOB", "GROUP", "HAVING", "ILIKE", "IN", "INNER", "INTERSECT", "IS", "JOIN"),
        *("LATERAL", "LEFT", "LIKE", "LIMIT", "NATURAL", "NOT", "OFFSET", "ON", "OR", "ORDER", "OVER"),
        *("POSITIONAL", "PRECEDING", "QUALIFY", "RETURNING", "RIGHT", "SELECT", "SET", "SIMILAR", "SOME"),
        *("THEN", "TO", "UNION", "USING", "VALUES", "WHEN", "WHERE"),
    ]
)  # of SQL, which the tokenizer may take for names


@dataclass(frozen=True)
class Inlined:
    sql: str
    uses: tuple[str, ...] = ()  # the functions that were called
    calls: tuple[PythonFunction, ...] = ()  # what the text calls in Python

    @property
    def options(self) -> Options:
        """What an object of this text has to keep."""
        return {CALLS: self.calls} if self.calls else {}


def argument(number: int) -> str:
    """What stands in a body for an argument."""
    return f"millpond.argument.{number}"


def calls_of(objects: Iterable[SqlObject]) -> dict[str, PythonFunction]:
    """All Python functions that the texts of some objects can call, by the name they have there."""
    found: dict[str, PythonFunction] = {}
    for one in objects:
        found.update((each.name, each) for each in one.options.get(CALLS, ()))
    return found


def called_in(text: str, known: Mapping[str, PythonFunction]) -> tuple[PythonFunction, ...]:
    """Those of some Python functions that a text calls."""
    return tuple(f for name, f in known.items() if quoted(name) in text) if "#" in text else ()


def check_known(sql: str, objects: Iterable[SqlObject]) -> None:
    """Refuse a text that calls a Python function which these objects do not hold (any more)."""
    called = set(_PYTHON.findall(sql))
    if called and (lost := called - calls_of(objects).keys()):
        raise InvalidError(f"the function {min(lost).rpartition('#')[0]}() was replaced or dropped meanwhile")


def inlined(sql: str, objects: Mapping[str, SqlObject]) -> Inlined:
    """The text without calls of functions among these objects."""
    functions = {o.name.lower(): o for o in objects.values() if o.kind == "function"}
    lower = sql.lower()
    functions = {n: f for n, f in functions.items() if n in lower}
    uses: dict[str, None] = {}
    text = _without_calls(sql, functions, uses) if functions else sql
    return Inlined(text, tuple(uses), called_in(text, calls_of(objects.values())))


def inlined_piece(piece: Piece, objects: Mapping[str, SqlObject]) -> Piece:
    """The same for a statement whose words are still to be read."""
    if not any(o.kind == "function" for o in objects.values()):
        return piece
    sql = piece.sql if piece.dialect in OWN else readable(piece)
    found = inlined(sql, objects)
    if not found.uses:
        return piece
    dialect = piece.dialect if piece.dialect in OWN else "duckdb"
    return Piece(found.sql, tokens_of(found.sql, dialect), dialect)


def _without_calls(sql: str, functions: Mapping[str, SqlObject], uses: dict[str, None]) -> str:
    """Inner calls first: they stand further right.  Bodies hold no calls any more."""
    end: int | None = None
    while True:
        piece = Piece(sql, tokens_of(sql, "duckdb"), "duckdb")
        places = [n for n, t in enumerate(piece.tokens) if end is None or t.start < end]
        place = next((n for n in reversed(places) if _is_call(piece, n, functions)), None)
        if place is None:
            return sql
        token = piece.tokens[place]
        called = functions[token.text.lower()]
        uses[called.name] = None
        fresh, stop = _written(piece, place, called)
        sql = sql[: token.start] + fresh + sql[stop:]
        end = token.start


def _is_call(piece: Piece, place: int, functions: Mapping[str, SqlObject]) -> bool:
    token = piece.tokens[place]
    if token.token_type is TokenType.STRING or token.text.lower() not in functions:
        return False
    if piece.word(place + 1) != "(" or (place and piece.word(place - 1) in _NOT_A_CALL):
        return False
    if place and (piece.word(place - 1) == ")" or _is_name(piece, place - 1)):
        return False  # a name with columns: FROM t f(a, b)
    _, end = piece.bracket(place + 1)
    common = place and piece.word(place - 1) in ("WITH", "RECURSIVE", ",")
    bodies = (("AS", "("), ("AS", "MATERIALIZED", "("), ("AS", "NOT", "MATERIALIZED", "("))
    return not (common and any(piece.has(end, *words) for words in bodies))


def _is_name(piece: Piece, place: int) -> bool:
    return piece.tokens[place].token_type in _NAMES and piece.word(place) not in _WORDS


# -- one call ---------------------------------------------------------------------------


def _written(piece: Piece, place: int, called: SqlObject) -> tuple[str, int]:
    """What a call means, and where its text ends."""
    inner, end = piece.bracket(place + 1)
    stop = piece.tokens[end - 1].end + 1
    kind = called.options[KIND]
    if kind == AGGREGATE:
        return _aggregate(piece, place, called, inner, end)
    given = _arguments(piece, place, called, inner)
    if kind == SCALAR:
        return _scalar(called, given), stop
    has_name = end < len(piece) and (piece.word(end) == "AS" or _is_name(piece, end))
    return _table(called, given) + ("" if has_name else f" AS {quoted(called.name)}"), stop


def _scalar(called: SqlObject, given: list[str]) -> str:
    if STRICT in called.options:
        asked = " OR ".join(f"({text}) IS NULL" for text in given)
        body = _scalar_body(called, given)
        return f"(CASE WHEN {asked} THEN NULL ELSE {body} END)" if given else body
    return _scalar_body(called, given)


def _scalar_body(called: SqlObject, given: list[str]) -> str:
    if called.options.get("row"):
        beside = f" FROM {_row(called, given)}" if given else ""
        return f"(SELECT {called.text}{beside})"
    return filled(called.text, given)


def _table(called: SqlObject, given: list[str]) -> str:
    if not called.options.get("row"):
        return f"({filled(called.text, given)})"
    columns = called.options[COLUMNS]
    listed = ", ".join(f"CAST(q.{quoted(n)} AS {t}) AS {quoted(n)}" for n, t in columns)
    names = ", ".join(quoted(n) for n, _ in columns)
    beside = f"{_row(called, given)}, LATERAL " if given else ""
    return f"(SELECT {listed} FROM {beside}(\n{called.text}\n) AS q({names}))"


def _row(called: SqlObject, given: list[str]) -> str:
    """The arguments as one row, under the names that the body has for them."""
    names = ", ".join(quoted(c.name) for c in called.columns)
    return f"(SELECT {', '.join(given)}) AS {quoted(called.name)}({names})"  # no alias for others to catch


def filled(body: str, given: list[str]) -> str:
    """The body with its arguments in their places.

    >>> filled('("millpond.argument.0" + 1)', ["x"])
    '(x + 1)'
    """
    return _ARGUMENT.sub(lambda m: given[int(m[1])], body)


def _aggregate(piece: Piece, place: int, called: SqlObject, inner: Piece, end: int) -> tuple[str, int]:
    """f(DISTINCT a ORDER BY b) FILTER (…) OVER (…): the function over the list of its rows."""
    order = inner.find("ORDER", "BY")
    by = "" if order is None else " " + inner.part(order).sql
    listed = inner if order is None else inner.part(0, order)
    word = "DISTINCT " if listed.has(0, "DISTINCT") else ""
    listed = listed.part(1) if word or listed.has(0, "ALL") else listed
    given = _arguments(piece, place, called, listed)
    fields = ", ".join(f"{quoted(c.name)} := {g}" for g, c in zip(given, called.columns, strict=True))
    text = f"list({word}struct_pack({fields}){by})"
    if piece.has(end, "FILTER", "("):
        _, after = piece.bracket(end + 1)
        text, end = f"{text} {piece.part(end, after).sql}", after
    if piece.has(end, "OVER"):
        after = piece.bracket(end + 1)[1] if piece.word(end + 1) == "(" else end + 2
        text, end = f"{text} {piece.part(end, after).sql}", after
    return filled(called.text, [text]), piece.tokens[end - 1].end + 1


# -- arguments ----------------------------------------------------------------------------


def _arguments(piece: Piece, place: int, called: SqlObject, inner: Piece) -> list[str]:
    """The text of every argument, as a value of its type, in the order of the parameters."""
    found: dict[str, str] = {}
    known = {c.name.lower(): c for c in called.columns}
    for number, part in enumerate(inner.split() if inner.tokens else []):
        if part.word(1) in (":=", "=>"):
            name, text = str(part.tokens[0].text).lower(), part.part(2).sql
            if name not in known:
                _wrong(piece, place, called, f"has no parameter {name!r}", near_miss(name, list(known)))
        elif number < len(called.columns):
            name, text = called.columns[number].name.lower(), part.sql
        else:
            count = len(inner.split())
            _wrong(piece, place, called, f"takes {_count(called)}, there are {count}")
        if name in found:
            _wrong(piece, place, called, f"got {name!r} twice")
        if not text:
            _wrong(piece, place, called, f"got nothing for {name!r}")
        found[name] = text
    for name, column in known.items():
        if name not in found and column.default is None:
            _wrong(piece, place, called, f"takes {_count(called)}, there is none for {column.name!r}")
    return [_typed(c, found.get(c.name.lower(), c.default or "")) for c in called.columns]


def _typed(column: SqlColumn, text: str) -> str:
    return f"CAST(({text}) AS {column.type})" if column.type else f"({text})"


def _count(called: SqlObject) -> str:
    most = len(called.columns)
    least = sum(c.default is None for c in called.columns)
    number = str(most) if least == most else f"{least} to {most}"
    return f"{number} argument{'' if most == 1 else 's'}" if most else "no arguments"


def _wrong(piece: Piece, place: int, called: SqlObject, why: str, near: str | None = None) -> NoReturn:
    token = piece.tokens[place]
    at = (len(piece.text[: token.start].encode()), len(str(token.text).encode()))
    raise pointing(f"{called.name}() {why}", piece.text, at, near or f"write {signature(called)}")


@contextmanager
def suggesting(objects: Callable[[], Mapping[str, SqlObject]]) -> Iterator[None]:
    """Inside, who calls a function that is not there is told of one with nearly its name."""
    try:
        yield
    except InvalidError as error:
        missing = re.search(r"function with name (\S+) does not exist", error.message, re.IGNORECASE)
        if missing is not None:
            known = [o.name for o in objects().values() if o.kind == "function"]
            error.hint = near_miss(missing[1], known) or error.hint
        raise


def signature(called: SqlObject) -> str:
    """A function as it is called: f(a BIGINT, b VARCHAR DEFAULT 'x')."""
    parts = []
    for c in called.columns:
        text = f"{c.name} {c.type}".rstrip()
        parts.append(text if c.default is None else f"{text} DEFAULT {c.default}")
    return f"{called.name}({', '.join(parts)})"


def returns(called: SqlObject) -> str:
    """What a function gives, as people write it."""
    if called.options[KIND] == TABLE:
        return f"TABLE({', '.join(f'{n} {t}' for n, t in called.options[COLUMNS])})"
    return str(called.options.get(RETURNS) or "")
