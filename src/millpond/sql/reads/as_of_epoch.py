"""AS OF: the epoch at which each relation of a query is read.

Law: an AS OF clause applies to the relation that it follows.  Relations without one
are all read at the same epoch: the newest, or the one that an AS OF at the very end
of the query names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from millpond.errors import InvalidError
from millpond.sql.binding.bind import as_user_error
from millpond.sql.binding.catalog import tree_of
from millpond.sql.binding.types import quoted
from millpond.sql.host import EpochOrName, Host
from millpond.sql.reads.system_names import is_system, path_of
from millpond.sql.text.duckdb_parser import ask
from millpond.sql.text.parameters import Params, with_literals
from millpond.sql.text.parse import SqlFragment, Words
from millpond.sql.text.relation_places import alias_follows, free_name, listed_from
from millpond.state.manifest import history

_HINT = "write it directly after a table or a view, or once at the end of the query"


@dataclass(frozen=True)
class Read:
    """A relation that a query reads at another epoch."""

    name: str
    when: EpochOrName
    called: str  # its name in the rewritten query
    path: tuple[str, ...] = ()  # all parts of its name


@dataclass(frozen=True)
class AsOfQuery:
    fragment: SqlFragment  # the query, with other names for relations that are read at another epoch
    plain: SqlFragment  # the query as written, without its AS OF clauses
    when: EpochOrName  # the epoch of all other relations
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class _Clause:
    place: int  # of its first token
    stop: int
    when: EpochOrName


@dataclass(frozen=True)
class _Relation:
    """A name in FROM, before a clause."""

    place: int
    stop: int  # after the name
    alias: bool


def as_of(host: Host, fragment: SqlFragment, params: Params) -> AsOfQuery:
    """Remove the AS OF clauses from a query, and return them with it.

    `AS OF EPOCH 12`, `AS OF SAVEPOINT name`, `FOR SYSTEM_TIME AS OF '2024-01-01 10:00'`.
    """
    clauses = list(_clauses(host, fragment, params)) if "OF" in fragment.words else []
    if not clauses:
        return AsOfQuery(fragment, fragment, None, ())
    whole: EpochOrName = None
    edits: list[tuple[int, int, str]] = []
    reads: dict[tuple[str, EpochOrName], Read] = {}
    for clause in clauses:
        relation = _relation(fragment, clause.place)
        start, end = fragment.tokens[clause.place].start, fragment.tokens[clause.stop - 1].end + 1
        if relation is None:
            if clause.stop < len(fragment) or clause is not clauses[-1]:
                fragment.fail("AS OF follows no table and no view here", clause.place, _HINT)
            whole = clause.when
            edits.append((start, end, " " * (end - start)))
            continue
        path = path_of(fragment, relation.place, relation.stop)
        named = fragment.part(relation.place, relation.stop)
        name = ".".join(path) if is_system(path) else Words(named).only_name()
        key = (name.lower(), clause.when)
        if key not in reads:
            reads[key] = Read(name, clause.when, free_name(fragment, f"as_of_{len(reads) + 1}"), path)
        first, last = fragment.tokens[relation.place], fragment.tokens[relation.stop - 1]
        edits.append((first.start, last.end + 1, reads[key].called))
        alias = (
            "" if relation.alias or alias_follows(fragment, clause.stop) else f" AS {_said(fragment, last)}"
        )
        edits.append((start, end, alias or " "))
    blank = [(fragment.tokens[c.place].start, fragment.tokens[c.stop - 1].end + 1) for c in clauses]
    plain = fragment.rewritten((a, b, " " * (b - a)) for a, b in blank)
    return AsOfQuery(fragment.rewritten(edits), plain, whole, tuple(reads.values()))


def _clauses(host: Host, fragment: SqlFragment, params: Params) -> Iterator[_Clause]:
    for place in range(len(fragment)):
        if fragment.has(place, "AS", "OF", "EPOCH") or fragment.has(place, "AS", "OF", "SAVEPOINT"):
            words = Words(with_literals(fragment.part(place + 3, place + 5), params))
            when: EpochOrName = (
                words.number() if fragment.word(place + 2) == "EPOCH" else words.name("savepoint")
            )
            tokens = 2 if fragment.word(place + 3) in ("$", ":") else 1
            yield _Clause(place, place + 3 + tokens, when)
        elif fragment.has(place, "FOR", "SYSTEM_TIME", "AS", "OF"):
            stop = _end_of_time(fragment, place + 4)
            time = with_literals(fragment.part(place + 4, stop), params)
            yield _Clause(place, stop, _epoch_at(host, time))


# -- which relation a clause follows ------------------------------------------------


def _relation(fragment: SqlFragment, place: int) -> _Relation | None:
    """Return the relation that ends before a place; None if no relations are listed there."""
    start = listed_from(fragment, place)
    if start is None:
        return None
    if fragment.word(start) == "LATERAL":
        start += 1
    if fragment.word(start) == "(":
        fragment.fail("AS OF cannot follow a query in brackets", place, "write it inside, after each table")
    at = start + 1
    while at + 1 < place and fragment.word(at) == ".":
        at += 2
    stop = at
    if fragment.word(at) == "AS" and at < place:
        at += 1
    if at < place and fragment.word(at) != "(":
        at += 1
    alias = at > stop
    if at < place and fragment.word(at) == "(":
        at = fragment.bracket(at)[1]
        if not alias:
            fragment.fail("AS OF cannot follow a function", place, _HINT)
    if start >= place or at != place:
        fragment.fail("AS OF must follow a table or a view directly", place, _HINT)
    return _Relation(start, stop, alias)


def _said(fragment: SqlFragment, token: Any) -> str:
    return fragment.text[token.start : token.end + 1]


# -- the texts of plain views --------------------------------------------------------


def renamed_relations(sql: str, names: Mapping[str, str]) -> str:
    """Rewrite a query to read other relations (lower-case name -> new name), aliased to the old names."""
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
    """Yield the relations that a query names, except its own CTEs."""
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


def _end_of_time(fragment: SqlFragment, place: int) -> int:
    if fragment.word(place) in ("TIMESTAMP", "TIMESTAMPTZ", "DATE", "$", ":"):
        return place + 2
    if fragment.word(place + 1) == "(":
        return fragment.bracket(place + 1)[1]
    if place >= len(fragment):
        fragment.fail("a time should stand here", place)
    return place + 1


def _epoch_at(host: Host, fragment: SqlFragment) -> EpochOrName:
    """Return the newest epoch whose time is not after this one."""
    if fragment.word(0) in ("PROCTIME", "NOW", "CURRENT_TIMESTAMP"):
        return None
    sql = f"select epoch_us(cast({fragment.sql} as timestamptz))"
    try:
        at = ask(sql)
    except duckdb.Error as error:
        raise as_user_error(error, sql) from error
    if at is None:
        fragment.fail("this is not a time")
    head = host.head()
    low, high, at_us = head.floor, head.epoch, int(at)
    first = history.read_manifest(host.store, low)
    if first.now_us > at_us:
        raise InvalidError(
            "there is no epoch as old as that", detail=f"the oldest one that is kept is epoch {low}"
        )
    while low < high:
        middle = (low + high + 1) // 2
        if history.read_manifest(host.store, middle).now_us <= at_us:
            low = middle
        else:
            high = middle - 1
    return low
