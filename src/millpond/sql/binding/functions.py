"""Inlines calls of user-defined functions: each call is replaced by the SQL of its body.

Law: a function is its definition.  Where a text is read, each call is replaced by the
body over its arguments, permanently: an object created with a function keeps the
definition of that time, even if the function is replaced or dropped later.  A name in
the body never captures an argument: a body that defines names (a query, a lambda) gets
its arguments as columns of a row that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.kernels.python_function import PythonFunction
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.synopsis_functions import is_built_in, mentioned
from millpond.sql.binding.types import quoted
from millpond.sql.refusal import pointing
from millpond.sql.text.parse import SqlFragment, closest_name, tokens_of

SCALAR, TABLE, AGGREGATE = "scalar", "table", "aggregate"
WATERMARK = "watermark"  # the strategy of WATERMARK FOR; expressions cannot call it
KIND, CALLS, RETURNS, COLUMNS, STRICT = "kind", "calls", "returns", "columns", "strict"  # option names
STRATEGY = "strategy"
Options = dict[str, Any]

_ARGUMENT = re.compile(r'"millpond\.argument\.(\d+)"')
_PYTHON = re.compile(r'"([^"]+#[0-9a-f]{12})"\(')
_NOT_A_CALL = (".", "AS")  # words before a name that is not called
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
)  # SQL keywords that the tokenizer may take for names


@dataclass(frozen=True)
class Inlined:
    sql: str
    uses: tuple[str, ...] = ()  # the functions that the text called
    calls: tuple[PythonFunction, ...] = ()  # the Python functions that the text calls

    @property
    def options(self) -> Options:
        """Return the options to store with an object that has this text."""
        return {CALLS: self.calls} if self.calls else {}


def argument(number: int) -> str:
    """Return the mark that replaces an argument in a body."""
    return f"millpond.argument.{number}"


def calls_of(objects: Iterable[SqlObject]) -> dict[str, PythonFunction]:
    """Return all Python functions that the texts of these objects can call, by their names there."""
    found: dict[str, PythonFunction] = {}
    for one in objects:
        found.update((each.name, each) for each in one.options.get(CALLS, ()))
    return found


def called_in(text: str, known: Mapping[str, PythonFunction]) -> tuple[PythonFunction, ...]:
    """Return those of these Python functions that a text calls."""
    return tuple(f for name, f in known.items() if quoted(name) in text) if "#" in text else ()


def check_known(sql: str, objects: Iterable[SqlObject]) -> None:
    """Refuse a text that calls a Python function which none of these objects has (any more)."""
    called = {name for name in _PYTHON.findall(sql) if not is_built_in(name)}
    if called and (lost := called - calls_of(objects).keys()):
        raise InvalidError(f"the function {min(lost).rpartition('#')[0]}() was replaced or dropped meanwhile")


def inlined(sql: str, objects: Mapping[str, SqlObject]) -> Inlined:
    """Replace the calls of functions among these objects with their bodies."""
    known = {**mentioned(sql.lower()), **{o.name.lower(): o for o in objects.values()}}
    callable_ = [o for o in known.values() if o.kind == "function" and o.options[KIND] != WATERMARK]
    functions = {o.name.lower(): o for o in callable_}
    lower = sql.lower()
    functions = {n: f for n, f in functions.items() if n in lower}
    uses: dict[str, None] = {}
    text = _without_calls(sql, functions, uses) if functions else sql
    made = tuple(name for name in uses if name in objects)
    return Inlined(text, made, called_in(text, calls_of(known.values())))


def inlined_fragment(fragment: SqlFragment, objects: Mapping[str, SqlObject]) -> SqlFragment:
    """Do the same for a statement in DuckDB's SQL."""
    found = inlined(fragment.sql, objects)
    if found.sql == fragment.sql:
        return fragment
    return SqlFragment(found.sql, tokens_of(found.sql, "duckdb"), "duckdb")


def _without_calls(sql: str, functions: Mapping[str, SqlObject], uses: dict[str, None]) -> str:
    """Replace calls from right to left, so that inner calls come first.  Bodies contain no calls."""
    end: int | None = None
    while True:
        fragment = SqlFragment(sql, tokens_of(sql, "duckdb"), "duckdb")
        places = [n for n, t in enumerate(fragment.tokens) if end is None or t.start < end]
        place = next((n for n in reversed(places) if _is_call(fragment, n, functions)), None)
        if place is None:
            return sql
        token = fragment.tokens[place]
        called = functions[token.text.lower()]
        uses[called.name] = None
        fresh, stop = _written(fragment, place, called)
        sql = sql[: token.start] + fresh + sql[stop:]
        end = token.start


def _is_call(fragment: SqlFragment, place: int, functions: Mapping[str, SqlObject]) -> bool:
    token = fragment.tokens[place]
    if token.token_type is TokenType.STRING or token.text.lower() not in functions:
        return False
    if fragment.word(place + 1) != "(" or (place and fragment.word(place - 1) in _NOT_A_CALL):
        return False
    if place and (fragment.word(place - 1) == ")" or _is_name(fragment, place - 1)):
        return False  # a table alias with columns: FROM t f(a, b)
    _, end = fragment.bracket(place + 1)
    common = place and fragment.word(place - 1) in ("WITH", "RECURSIVE", ",")
    bodies = (("AS", "("), ("AS", "MATERIALIZED", "("), ("AS", "NOT", "MATERIALIZED", "("))
    return not (common and any(fragment.has(end, *words) for words in bodies))


def _is_name(fragment: SqlFragment, place: int) -> bool:
    return fragment.tokens[place].token_type in _NAMES and fragment.word(place) not in _WORDS


# -- one call ---------------------------------------------------------------------------


def _written(fragment: SqlFragment, place: int, called: SqlObject) -> tuple[str, int]:
    """Return the text that replaces a call, and the end of the call."""
    inner, end = fragment.bracket(place + 1)
    stop = fragment.tokens[end - 1].end + 1
    kind = called.options[KIND]
    if kind == AGGREGATE:
        return _aggregate(fragment, place, called, inner, end)
    given = _arguments(fragment, place, called, inner)
    if kind == SCALAR:
        return _scalar(called, given), stop
    has_name = end < len(fragment) and (fragment.word(end) == "AS" or _is_name(fragment, end))
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
    """Return the arguments as one row, with the names that the body uses."""
    names = ", ".join(quoted(c.name) for c in called.columns)
    return f"(SELECT {', '.join(given)}) AS {quoted(called.name)}({names})"  # no alias captures names


def filled(body: str, given: list[str]) -> str:
    """Replace the marks in a body with the arguments.

    >>> filled('("millpond.argument.0" + 1)', ["x"])
    '(x + 1)'
    """
    return _ARGUMENT.sub(lambda m: given[int(m[1])], body)


def _aggregate(
    fragment: SqlFragment, place: int, called: SqlObject, inner: SqlFragment, end: int
) -> tuple[str, int]:
    """Render f(DISTINCT a ORDER BY b) FILTER (…) OVER (…) as the function over the list of its rows."""
    order = inner.find("ORDER", "BY")
    by = "" if order is None else " " + inner.part(order).sql
    listed = inner if order is None else inner.part(0, order)
    word = "DISTINCT " if listed.has(0, "DISTINCT") else ""
    listed = listed.part(1) if word or listed.has(0, "ALL") else listed
    given = _arguments(fragment, place, called, listed)
    fields = ", ".join(f"{quoted(c.name)} := {g}" for g, c in zip(given, called.columns, strict=True))
    text = f"list({word}struct_pack({fields}){by})"
    if fragment.has(end, "FILTER", "("):
        _, after = fragment.bracket(end + 1)
        text, end = f"{text} {fragment.part(end, after).sql}", after
    if fragment.has(end, "OVER"):
        after = fragment.bracket(end + 1)[1] if fragment.word(end + 1) == "(" else end + 2
        text, end = f"{text} {fragment.part(end, after).sql}", after
    return filled(called.text, [text]), fragment.tokens[end - 1].end + 1


# -- arguments ----------------------------------------------------------------------------


def _arguments(fragment: SqlFragment, place: int, called: SqlObject, inner: SqlFragment) -> list[str]:
    """Return the text of every argument, cast to its type, in the order of the parameters."""
    found: dict[str, str] = {}
    known = {c.name.lower(): c for c in called.columns}
    for number, part in enumerate(inner.split() if inner.tokens else []):
        if part.word(1) in (":=", "=>"):
            name, text = str(part.tokens[0].text).lower(), part.part(2).sql
            if name not in known:
                _wrong(fragment, place, called, f"has no parameter {name!r}", closest_name(name, list(known)))
        elif number < len(called.columns):
            name, text = called.columns[number].name.lower(), part.sql
        else:
            count = len(inner.split())
            _wrong(fragment, place, called, f"takes {_count(called)}, there are {count}")
        if name in found:
            _wrong(fragment, place, called, f"got {name!r} twice")
        if not text:
            _wrong(fragment, place, called, f"got nothing for {name!r}")
        found[name] = text
    for name, column in known.items():
        if name not in found and column.default is None:
            _wrong(fragment, place, called, f"takes {_count(called)}, there is none for {column.name!r}")
    return [_typed(c, found.get(c.name.lower(), c.default or "")) for c in called.columns]


def _typed(column: SqlColumn, text: str) -> str:
    return f"CAST(({text}) AS {column.type})" if column.type else f"({text})"


def _count(called: SqlObject) -> str:
    most = len(called.columns)
    least = sum(c.default is None for c in called.columns)
    number = str(most) if least == most else f"{least} to {most}"
    return f"{number} argument{'' if most == 1 else 's'}" if most else "no arguments"


def _wrong(
    fragment: SqlFragment, place: int, called: SqlObject, why: str, near: str | None = None
) -> NoReturn:
    token = fragment.tokens[place]
    at = (len(fragment.text[: token.start].encode()), len(str(token.text).encode()))
    raise pointing(f"{called.name}() {why}", fragment.text, at, near or f"write {signature(called)}")


@contextmanager
def suggesting(objects: Callable[[], Mapping[str, SqlObject]]) -> Iterator[None]:
    """Add a hint with a similar name to errors about unknown functions."""
    try:
        yield
    except InvalidError as error:
        missing = re.search(r"function (?:with name )?(\S+) does not exist", error.message, re.IGNORECASE)
        if missing is not None:
            known = [o.name for o in objects().values() if o.kind == "function"]
            error.hint = closest_name(missing[1], known) or error.hint
        raise


def signature(called: SqlObject) -> str:
    """Render the signature of a function: f(a BIGINT, b VARCHAR DEFAULT 'x')."""
    parts = []
    for c in called.columns:
        text = f"{c.name} {c.type}".rstrip()
        parts.append(text if c.default is None else f"{text} DEFAULT {c.default}")
    return f"{called.name}({', '.join(parts)})"


def returns(called: SqlObject) -> str:
    """Render the return type of a function, as users write it."""
    if called.options[KIND] == TABLE:
        return f"TABLE({', '.join(f'{n} {t}' for n, t in called.options[COLUMNS])})"
    return str(called.options.get(RETURNS) or "")
