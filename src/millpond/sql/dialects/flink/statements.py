"""Statements of Flink as ours.

A query of Flink over windows shows each window once it is over, so a view or sink of it has EMIT ON WINDOW
CLOSE.  INSERT INTO a table with a connector runs for ever there: here it is a sink, and the table must be
created in the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from millpond.kernels.duck import quoted
from millpond.sql.dialects.flink.tables import FlinkTable, as_ours, read_table, sink_options
from millpond.sql.dialects.flink.translate import translated
from millpond.sql.dialects.known_objects import KnownObjects
from millpond.sql.text.parse import SqlFragment, Words, statements
from millpond.sql.text.time_windows import KIND

_QUERIES = ("SELECT", "WITH", "VALUES", "(")
_SAME = (
    "SHOW",
    "DESCRIBE",
    "DESC",
    "FLUSH",
    "SUBSCRIBE",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
)  # ours, in any dialect
_CHANGES = ("UPDATE", "DELETE")
# Settings that change how Flink runs, and no row.
_SETTINGS = re.compile(
    r"(parallelism\.|pipeline\.|execution\.checkpointing\.|state\.|restart-strategy|taskmanager\.|jobmanager\."
    r"|table\.exec\.mini-batch\.|table\.optimizer\.|table\.exec\.resource\.|sql-client\.|execution\.target).*"
)
_FIXED = {"execution.runtime-mode": "streaming", "table.local-time-zone": "UTC", "table.dml-sync": "false"}
_REFUSED = {
    "EXECUTE": "run the statements one after the other: each view and sink is maintained by itself",
    "RESET": "settings are given to millpond.open(…)",
    "USE": "open another pond: millpond.open(path)",
    "ADD": "register Python with pond.function",
    "REMOVE": "register Python with pond.function",
    "LOAD": "what is built in is there",
    "UNLOAD": "what is built in is there",
    "ANALYZE": "there are no statistics to collect",
    "STOP": "DROP the sink or the view",
    "CALL": "use the functions of the pond",
    "END": "run the statements one after the other: each view and sink is maintained by itself",
}


def as_own_statements(fragments: Sequence[SqlFragment], known: KnownObjects) -> list[SqlFragment]:
    """The statements of a text in the dialect `duckdb`."""
    targets = {_target(f) for f in fragments if f.has(0, "INSERT", "INTO")}
    writer = _Statements(known, targets, fragments)
    return [made for one in fragments for made in writer.of(one)]


def _target(fragment: SqlFragment) -> str:
    return Words(fragment, 2).name("name of the table").lower()


class _Statements:
    """Writes the statements of one text."""

    def __init__(self, known: KnownObjects, targets: set[str], text: Sequence[SqlFragment]) -> None:
        self.known, self.targets, self.fragments = known, targets, text
        self.made: dict[str, str] = {}  # what the text creates: the kind of each name
        self.windowed: set[str] = set()  # plain views of the text that read windows

    def of(self, fragment: SqlFragment) -> list[SqlFragment]:
        first = fragment.word(0)
        write: Callable[[SqlFragment], str | None]
        if first in _QUERIES:
            write = _query
        elif first == "CREATE":
            write = self._create
        elif first == "INSERT":
            write = self._insert
        elif first == "DROP":
            write = self._drop
        elif first == "SET":
            write = _set
        elif first == "EXPLAIN":
            write = _explain
        elif first in _CHANGES:
            write = _query
        elif first in _SAME and not fragment.has(0, "BEGIN", "STATEMENT"):
            write = _unchanged
        else:
            hint = _REFUSED.get(first) or "write it in the default dialect"
            said = " ".join(t.text for t in fragment.tokens[: 3 if first in ("EXECUTE", "BEGIN") else 1])
            if first == "BEGIN":
                hint = _REFUSED["EXECUTE"]
            fragment.fail(f"{said} of the dialect 'flink' is not supported", 0, hint)
            raise AssertionError
        text = write(fragment)
        return (
            []
            if text is None
            else [
                SqlFragment(one.text, one.tokens, one.dialect, fragment.sql)
                for one in statements(text, "duckdb")
            ]
        )

    def _create(self, fragment: SqlFragment) -> str | None:
        words = Words(fragment, 1)
        replaces = "OR REPLACE " if words.take("OR", "REPLACE") else ""
        if words.take("TEMPORARY") and words.fragment.word(words.at) in ("SYSTEM", "FUNCTION"):
            words.fail("functions of Flink cannot be created here", "register Python with pond.function")
        if words.take("TABLE"):
            if _is_as(words):
                words.fail("CREATE TABLE … AS of the dialect 'flink' runs for ever", _AS_VIEW)
            table = read_table(words, replaces)
            if table.name.lower() in self.targets and table.options is not None:
                sink_options(table)
                return None  # INSERT INTO makes it a sink
            made = as_ours(table)
            self.made[table.name.lower()] = "source" if "SOURCE " in made.partition("(")[0] else "table"
            return made
        if words.take("VIEW"):
            return self._view(words, f"CREATE {replaces}VIEW", closes=False)
        if words.take("MATERIALIZED", "VIEW") or words.take("MATERIALIZED", "TABLE"):
            return self._view(words, f"CREATE {replaces}MATERIALIZED VIEW", closes=True)
        words.fail(
            f"CREATE {fragment.word(words.at)} of the dialect 'flink' is not supported",
            "TABLE, VIEW and MATERIALIZED TABLE are",
        )
        raise AssertionError

    def _view(self, words: Words, head: str, *, closes: bool) -> str:
        exists = "IF NOT EXISTS " if words.if_not_exists() else ""
        name = words.name("name of the view")
        columns = ""
        if words.fragment.word(words.at) == "(":
            columns = f" ({', '.join(map(quoted, words.names()))})"
        if words.take("COMMENT"):
            words.text()
        if closes and words.take("FRESHNESS"):  # a view is never behind
            words.need("=")
            while not words.over and words.fragment.word(words.at) not in ("AS", "REFRESH_MODE"):
                words.at += 1
        if closes and words.take("REFRESH_MODE"):
            words.need("=")
            words.text()
        words.need("AS")
        query = self.translated(words.rest)
        emission = self._emission(query)
        self.made[name.lower()] = "materialized view" if closes else "view"
        if emission and not closes:
            self.windowed.add(name.lower())
        return f"{head} {exists}{quoted(name)}{columns} AS {query}{emission if closes else ''}"

    def translated(self, fragment: SqlFragment) -> str:
        return translated(fragment.sql)

    def _emission(self, query: str) -> str:
        names = _names(query)
        windowed = f'"{KIND}"' in query or names & self.windowed or any(map(self.known.has_windows, names))
        return " EMIT ON WINDOW CLOSE" if windowed else ""

    def _insert(self, fragment: SqlFragment) -> str:
        if fragment.word(1) != "INTO":
            fragment.fail(
                f"INSERT {fragment.word(1)} of the dialect 'flink' is not supported", 1, "INSERT INTO"
            )
        words = Words(fragment, 2)
        name = words.name("name of the table")
        if words.take("PARTITION"):
            words.fail("PARTITION of the dialect 'flink' is not supported", "select the column")
        columns = words.names() if words.fragment.word(words.at) == "(" else []
        table = self._declared(name)
        if table is not None and table.options is not None:
            return self._sink(table, words.rest, columns)
        kind = self._kind(name)
        if kind == "source":
            fragment.fail(
                f"{name!r} is a source: rows cannot be written to it",
                2,
                "put CREATE TABLE and INSERT INTO into one text, which makes it a sink",
            )
        if words.rest.find("FROM") is not None and words.rest.word(0) != "VALUES":
            fragment.fail("INSERT INTO … SELECT of the dialect 'flink' runs for ever", 0, _AS_VIEW)
        return _query(fragment)

    def _kind(self, name: str) -> str | None:
        return self.made.get(name.lower()) or self.known.kind(name)

    def _declared(self, name: str) -> FlinkTable | None:
        """The table of this name that the text creates."""
        for one in self.fragments:
            words = Words(one, 1)
            _ = words.take("OR", "REPLACE") or words.take("TEMPORARY")
            if one.word(0) == "CREATE" and words.take("TABLE") and not _is_as(words):
                table = read_table(words, "")
                if table.name.lower() == name.lower():
                    return table
        return None

    def _sink(self, table: FlinkTable, rest: SqlFragment, columns: list[str]) -> str:
        query = self.translated(rest)
        names = ", ".join(map(quoted, columns or table.written))
        read = f"SELECT * FROM ({query}) AS named({names})"
        options = sink_options(table)
        emission = self._emission(query)
        if not emission:
            return f"CREATE SINK {quoted(table.name)} AS {read} {options}"
        view = quoted(f"{table.name}_windows")
        made = f"CREATE MATERIALIZED VIEW {view} AS {read}{emission}"
        return f"{made}; CREATE SINK {quoted(table.name)} FROM {view} {options}"

    def _drop(self, fragment: SqlFragment) -> str:
        words = Words(fragment, 1)
        words.take("TEMPORARY")
        kind = "MATERIALIZED TABLE" if words.take("MATERIALIZED", "TABLE") else fragment.word(words.at)
        if kind not in ("TABLE", "VIEW", "MATERIALIZED TABLE"):
            words.at = len(fragment)
            if fragment.has(1, "MATERIALIZED", "VIEW") or fragment.word(1) in ("SINK", "SOURCE"):
                return _unchanged(fragment)
            fragment.fail(f"DROP {kind} of the dialect 'flink' is not supported", 1, "TABLE and VIEW are")
        if kind != "MATERIALIZED TABLE":
            words.at += 1
        exists = "IF EXISTS " if words.if_exists() else ""
        name = words.name("name")
        words.end()
        there = self._kind(name) or {"MATERIALIZED TABLE": "materialized view"}.get(kind, kind)
        return f"DROP {there.upper()} {exists}{quoted(name)}"


_AS_VIEW = "CREATE MATERIALIZED VIEW name AS SELECT … is maintained"


def _is_as(words: Words) -> bool:
    """Does CREATE TABLE have a query?"""
    at = words.fragment.find("AS", start=words.at)
    return at is not None and words.fragment.word(at + 1) in (*_QUERIES, "SELECT")


def _names(query: str) -> set[str]:
    return {name.strip('"').lower() for name in re.findall(r'"[^"]+"|\w+', query)}


def _query(fragment: SqlFragment) -> str:
    return translated(fragment.sql)


def _unchanged(fragment: SqlFragment) -> str:
    return re.sub(r"`([^`]*)`", r'"\1"', fragment.sql)


def _explain(fragment: SqlFragment) -> str:
    words = Words(fragment, 1)
    if words.take("PLAN"):
        words.need("FOR")
    return f"EXPLAIN {translated(words.rest.sql)}"


def _set(fragment: SqlFragment) -> None:
    """SET 'key' = 'value': what changes no row is accepted."""
    words = Words(fragment, 1)
    key = words.text()
    while words.take("."):
        key += "." + words.text()
    words.need("=")
    value = words.text()
    if _FIXED.get(key, "").lower() == value.lower() or _SETTINGS.fullmatch(key):
        return
    hint = f"it is {_FIXED[key]!r} here" if key in _FIXED else "leave it out, if the rows do not depend on it"
    fragment.fail(f"SET {key!r} of the dialect 'flink' is not supported", 1, hint)
