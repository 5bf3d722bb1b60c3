"""AS OF: the epoch at which each relation of a query is read.

Law: an AS OF clause applies to the relation that it follows.  Relations without one
are all read at the same epoch: the newest, or the one that an AS OF at the very end
of the query names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import duckdb
from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.sql.bind import told
from millpond.sql.catalog import tree_of
from millpond.sql.parameters import Params, with_literals
from millpond.sql.parse import Piece, Words, ask, parser
from millpond.sql.types import quoted
from millpond.state import history

if TYPE_CHECKING:
    from millpond.pond import Pond

When = int | str | None  # an epoch, a savepoint, or the newest

# Words that begin a part of a query; in FROM and JOIN relations are listed.
_PARTS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH"),
    *("VALUES", "TABLESAMPLE", "UNION", "EXCEPT", "INTERSECT", "JOIN", "ON", "USING"),
)
_HINT = "write it directly after a table or a view, or once at the end of the query"


@dataclass(frozen=True)
class Read:
    """A relation that a query reads at an epoch of its own."""

    name: str
    when: When
    called: str  # the name that stands for it in the rewritten query


@dataclass(frozen=True)
class Asked:
    piece: Piece  # the query, with other names for the relations that are read at epochs of their own
    plain: Piece  # the query as it was written, without its AS OF clauses
    when: When  # of all other relations
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class _Clause:
    place: int  # of its first token
    stop: int
    when: When


@dataclass(frozen=True)
class _Relation:
    """A name in FROM, in front of a clause."""

    place: int
    stop: int  # behind the name
    alias: bool


def as_of(pond: Pond, piece: Piece, params: Params) -> Asked:
    """The query without its AS OF clauses, and what they say.

    `AS OF EPOCH 12`, `AS OF SAVEPOINT name`, `FOR SYSTEM_TIME AS OF '2024-01-01 10:00'`.
    """
    clauses = list(_clauses(pond, piece, params))
    if not clauses:
        return Asked(piece, piece, None, ())
    whole: When = None
    edits: list[tuple[int, int, str]] = []
    reads: dict[tuple[str, When], Read] = {}
    for clause in clauses:
        relation = _relation(piece, clause.place)
        start, end = piece.tokens[clause.place].start, piece.tokens[clause.stop - 1].end + 1
        if relation is None:
            if clause.stop < len(piece) or clause is not clauses[-1]:
                piece.fail("AS OF follows no table and no view here", clause.place, _HINT)
            whole = clause.when
            edits.append((start, end, " " * (end - start)))
            continue
        name = Words(piece.part(relation.place, relation.stop)).only_name()
        key = (name.lower(), clause.when)
        if key not in reads:
            reads[key] = Read(name, clause.when, _free_name(piece, len(reads)))
        first, last = piece.tokens[relation.place], piece.tokens[relation.stop - 1]
        edits.append((first.start, last.end + 1, reads[key].called))
        alias = "" if relation.alias or _alias_follows(piece, clause.stop) else f" AS {_said(piece, last)}"
        edits.append((start, end, alias or " "))
    blank = [(piece.tokens[c.place].start, piece.tokens[c.stop - 1].end + 1) for c in clauses]
    plain = piece.rewritten((a, b, " " * (b - a)) for a, b in blank)
    return Asked(piece.rewritten(edits), plain, whole, tuple(reads.values()))


def _clauses(pond: Pond, piece: Piece, params: Params) -> Iterator[_Clause]:
    for place in range(len(piece)):
        if piece.has(place, "AS", "OF", "EPOCH") or piece.has(place, "AS", "OF", "SAVEPOINT"):
            words = Words(with_literals(piece.part(place + 3, place + 5), params))
            when: When = words.number() if piece.word(place + 2) == "EPOCH" else words.name("savepoint")
            tokens = 2 if piece.word(place + 3) in ("$", ":") else 1
            yield _Clause(place, place + 3 + tokens, when)
        elif piece.has(place, "FOR", "SYSTEM_TIME", "AS", "OF"):
            stop = _end_of_time(piece, place + 4)
            time = with_literals(piece.part(place + 4, stop), params)
            yield _Clause(place, stop, _epoch_at(pond, time))


# -- which relation a clause follows ------------------------------------------------


def _relation(piece: Piece, place: int) -> _Relation | None:
    """The relation that ends in front of a place, if that is where relations are listed."""
    start = _listed_from(piece, place)
    if start is None:
        return None
    if piece.word(start) == "LATERAL":
        start += 1
    if piece.word(start) == "(":
        piece.fail("AS OF cannot follow a query in brackets", place, "write it inside, after each table")
    at = start + 1
    while at + 1 < place and piece.word(at) == ".":
        at += 2
    stop = at
    if piece.word(at) == "AS" and at < place:
        at += 1
    if at < place and piece.word(at) != "(":
        at += 1
    alias = at > stop
    if at < place and piece.word(at) == "(":
        at = piece.bracket(at)[1]
        if not alias:
            piece.fail("AS OF cannot follow a function", place, _HINT)
    if start >= place or at != place:
        piece.fail("AS OF must follow a table or a view directly", place, _HINT)
    return _Relation(start, stop, alias)


def _listed_from(piece: Piece, place: int) -> int | None:
    """Where the relation begins that ends in front of a place; None behind WHERE, ON and the like."""
    depth, comma = 0, None
    for at in range(place - 1, -1, -1):
        kind = piece.tokens[at].token_type
        if kind in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE):
            depth += 1
        elif kind in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
            depth -= 1
            if depth < 0:  # a bracket around joined tables
                return _listed_in_bracket(piece, at, comma, place)
        elif depth == 0 and kind is TokenType.COMMA:
            comma = at if comma is None else comma
        elif depth == 0 and piece.word(at) in _PARTS and piece.word(at - 1) != ".":
            word = piece.word(at)
            compared = (
                word == "FROM" and piece.word(at - 1) == "DISTINCT" and piece.word(at - 2) in ("IS", "NOT")
            )
            if word in ("FROM", "JOIN") and not compared:
                return at + 1 if comma is None else comma + 1
            return comma + 1 if word in ("ON", "USING") and comma is not None else None
    return None


def _listed_in_bracket(piece: Piece, opened: int, comma: int | None, place: int) -> int | None:
    """`FROM (t AS OF EPOCH 1 JOIN u …)`: a bracket that stands where a relation does."""
    if comma is None and piece.word(opened - 1) in ("FROM", "JOIN", ",", "("):
        return opened + 1 if opened + 1 < place else None
    return None


def _alias_follows(piece: Piece, place: int) -> bool:
    if piece.word(place) == "AS":
        return True
    token = piece.tokens[place] if place < len(piece) else None
    if token is None or token.token_type is TokenType.STRING:
        return False
    if token.token_type is TokenType.IDENTIFIER:
        return True
    plain = token.text[:1].isalpha() or token.text[:1] == "_"
    return plain and token.text.lower() not in _no_aliases()


@lru_cache(maxsize=1)
def _no_aliases() -> frozenset[str]:
    """Words that are no name of a relation unless in quotes."""
    sql = "select keyword_name from duckdb_keywords() where keyword_category in ('reserved', 'type_function')"
    return frozenset(row[0] for row in parser().execute(sql).fetchall())


def _said(piece: Piece, token: Any) -> str:
    return piece.text[token.start : token.end + 1]


def _free_name(piece: Piece, number: int) -> str:
    """A name that nothing in the query has."""
    name = f"as_of_{number + 1}"
    while name in piece.text.lower():
        name = f"{name}_"
    return name


# -- the texts of plain views --------------------------------------------------------


def renamed_relations(sql: str, names: Mapping[str, str]) -> str:
    """A query that reads other relations (names in lower case: new names) under the names it knows."""
    raw, edits = sql.encode(), []
    for node in _base_tables(tree_of(sql), frozenset()):
        called = names.get(str(node["table_name"]).lower())
        if called is None:
            continue
        start = int(node["query_location"])
        columns = ", ".join(quoted(c) for c in node["column_name_alias"])
        alias = quoted(str(node["alias"] or node["table_name"])) + (f"({columns})" if columns else "")
        fresh = f"{quoted(called)} AS {alias}"
        edits.append((start, start + int(node["query_location_length"]), fresh.encode()))
    for start, end, text in sorted(edits, reverse=True):
        raw = raw[:start] + text + raw[end:]
    return raw.decode()


def _base_tables(node: Any, own: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    """The relations that a query names, but for those that it defines itself."""
    if isinstance(node, Mapping):
        ctes: Sequence[Any] = (node.get("cte_map") or {}).get("map") or ()
        for one in ctes:
            inner = own | ({str(one["key"]).lower()} if _recursive(one) else set())
            yield from _base_tables(one["value"], inner)
            own |= {str(one["key"]).lower()}
        if node.get("type") == "BASE_TABLE" and (
            node.get("schema_name") or str(node["table_name"]).lower() not in own
        ):
            yield node
        for key, value in node.items():
            if key != "cte_map":
                yield from _base_tables(value, own)
    elif isinstance(node, list):
        for value in node:
            yield from _base_tables(value, own)


def _recursive(cte: Mapping[str, Any]) -> bool:
    found = cte["value"].get("query_node") or (cte["value"].get("query") or {}).get("node") or {}
    return bool(found.get("type") == "RECURSIVE_CTE_NODE")


# -- times -----------------------------------------------------------------------------


def _end_of_time(piece: Piece, place: int) -> int:
    if piece.word(place) in ("TIMESTAMP", "TIMESTAMPTZ", "DATE", "$", ":"):
        return place + 2
    if piece.word(place + 1) == "(":
        return piece.bracket(place + 1)[1]
    if place >= len(piece):
        piece.fail("a time should stand here", place)
    return place + 1


def _epoch_at(pond: Pond, piece: Piece) -> When:
    """The newest epoch whose time is not after this one."""
    if piece.word(0) in ("PROCTIME", "NOW", "CURRENT_TIMESTAMP"):
        return None
    sql = f"select epoch_us(cast({piece.sql} as timestamptz))"
    try:
        at = ask(sql)
    except duckdb.Error as error:
        raise told(error, sql) from error
    if at is None:
        piece.fail("this is not a time")
    head = pond.head()
    low, high, at_us = head.floor, head.epoch, int(at)
    first = history.read_manifest(pond.store, low)
    if first.now_us > at_us:
        raise InvalidError(
            "there is no epoch as old as that", detail=f"the oldest one that is kept is epoch {low}"
        )
    while low < high:
        middle = (low + high + 1) // 2
        if history.read_manifest(pond.store, middle).now_us <= at_us:
            low = middle
        else:
            high = middle - 1
    return low
