"""Columns with the metadata of messages: `name type METADATA [FROM 'field'] [VIRTUAL]`, as Flink writes them,
and `INCLUDE field [AS name]` behind the columns, as RisingWave does.

Both are metadata of a topic of Kafka (`sources.kafka_metadata`).
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.kernels.duck import quoted
from millpond.sql.text.parse import SqlFragment, Words, statements

# The metadata behind INCLUDE, and the types of its columns in RisingWave.
_INCLUDED = {
    "KEY": ("key", "BYTEA"),
    "PARTITION": ("partition", "VARCHAR"),
    "OFFSET": ("offset", "VARCHAR"),
    "TIMESTAMP": ("timestamp", "TIMESTAMPTZ"),
    "HEADER": ("headers", 'STRUCT("key" VARCHAR, "value" BYTEA)[]'),
}
_HEADER_TYPES = ("BYTEA", "VARCHAR")
_CONTINUES = ("FROM", "VIRTUAL", "NOT", "NULL")  # what can follow METADATA
_EXPRESSIONS = ("AS", "DEFAULT", "GENERATED")  # METADATA behind them is the name of a column


@dataclass(frozen=True)
class IncludedColumn:
    """A column of INCLUDE, as the definition of a column and the metadata that it has."""

    definition: SqlFragment
    field: str


def read_includes(words: Words) -> list[IncludedColumn]:
    """Parse `INCLUDE field [AS name] …` behind the columns."""
    found = []
    while words.take("INCLUDE"):
        word = words.fragment.word(words.at)
        if word not in _INCLUDED:
            words.fail(
                f"INCLUDE {word or words.text()} is not supported", f"one of {', '.join(_INCLUDED).lower()}"
            )
        words.at += 1
        field, kind = _INCLUDED[word]
        if word == "HEADER" and words.fragment.word(words.at) not in ("AS", "INCLUDE", "WITH"):
            field, kind = f"header:{words.text()}", "BYTEA"
            if words.fragment.word(words.at) in _HEADER_TYPES:
                kind = words.text().upper()
        if not words.take("AS"):
            words.fail(
                f"the column of INCLUDE {word} needs a name",
                f"INCLUDE {word} AS kafka_{word.lower()}: names that begin with '_' belong to Millpond",
            )
        text = f"{quoted(words.name('name of the column'))} {kind}"
        found.append(IncludedColumn(statements(text, "duckdb")[0], field))
    return found


def cut_metadata(part: SqlFragment) -> tuple[SqlFragment, str | None]:
    """The definition of a column without METADATA …, and the metadata that it names."""
    at = part.find("METADATA", start=2)
    follows = "" if at is None else part.word(at + 1)
    if at is None or (at + 1 < len(part) and follows not in _CONTINUES):
        return part, None
    if any(part.word(n) in _EXPRESSIONS for n in part.outside(1) if n < at):
        return part, None
    words = Words(part, at + 1)
    field = words.text() if words.take("FROM") else Words(part).name()
    _ = words.take("VIRTUAL")
    rest = (*part.tokens[:at], *part.tokens[words.at :])
    return SqlFragment(part.text, rest, part.dialect, part.said), field
