"""Every connector has a page with its guarantee, all of its settings, an example and what happens when it fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millpond.sql.statements.create_source import SOURCE_OPTIONS
from millpond.sql.statements.sink_connectors import SETTINGS, SINK_CONNECTORS

DOCS = Path(__file__).parents[2] / "docs"
# The pages of a connector, the main one first.
SINKS = {
    "delta": ["connectors/delta.md"],
    "files": ["connectors/files.md"],
    "http": ["connectors/http.md"],
    "iceberg": ["connectors/iceberg.md"],
    "jdbc": ["connectors/jdbc.md"],
    "kafka": ["connectors/kafka.md"],
    "postgres": ["connectors/postgres.md"],
}
SOURCES = {
    "delta": ["connectors/delta.md"],
    "files": ["connectors/file-source.md"],
    "iceberg": ["connectors/iceberg.md"],
    "kafka": ["connectors/kafka-formats.md", "kafka.md"],
    "millpond": ["connectors/pond.md"],
    "nexmark": ["sql.md"],
    "postgres-cdc": ["connectors/postgres-cdc.md"],
}
NOT_NAMED_BY_SQL = ["connectors/callback.md", "connectors/foreach-batch.md", "connectors/inserting-rows.md"]
EXAMPLE = re.compile(r"```python\n|^    CREATE (SINK|SOURCE|TABLE) ", re.M)
FAILURE = re.compile(r"^#+ .*[Ff]ailure|^\*\*Failure\*\*|^#+ Guarantees", re.M)


def text_of(pages: list[str]) -> str:
    return "\n".join((DOCS / page).read_text() for page in pages)


def undocumented(text: str, options: tuple[str, ...]) -> list[str]:
    """Options that a page does not name; the README has those that all sinks share."""
    shared = (DOCS / "connectors/README.md").read_text()

    def is_named(option: str) -> bool:
        start = option.removesuffix("…")
        end = r"(?![\w.])" if start == option else ""
        place = text + shared if option in SETTINGS else text
        return re.search(rf"(?<![\w.]){re.escape(start)}{end}", place) is not None

    return [option for option in options if not is_named(option)]


def check(text: str, guarantee: str, options: tuple[str, ...]) -> None:
    assert EXAMPLE.search(text), "no example"
    words = guarantee.replace("_", "[ _-]")
    assert re.search(words, text, re.I), f"it does not say that it is {guarantee}"
    assert FAILURE.search(text), "no section on failures"
    assert undocumented(text, options) == [], "options that the page does not have"


@pytest.mark.parametrize("connector", SINK_CONNECTORS)
def test_sinks(connector: str) -> None:
    found = SINK_CONNECTORS[connector]
    check(text_of(SINKS[connector]), found.guarantee, (*found.options, *SETTINGS))


@pytest.mark.parametrize("connector", [name for name in SOURCE_OPTIONS if name != "nexmark"])
def test_sources(connector: str) -> None:
    options = tuple(name for name in SOURCE_OPTIONS[connector] if name != "connector")
    check(text_of(SOURCES[connector]), "exactly_once", options)


@pytest.mark.parametrize("page", NOT_NAMED_BY_SQL)
def test_pages_of_python_alone(page: str) -> None:
    text = text_of([page])
    assert EXAMPLE.search(text) and FAILURE.search(text) and re.search(r"once|Guarantee", text)


def test_no_page_is_forgotten() -> None:
    """A new page is checked here, or is one of those that describe no connector."""
    known = {page for pages in (*SINKS.values(), *SOURCES.values()) for page in pages} | {*NOT_NAMED_BY_SQL}
    others = {f"connectors/{name}.md" for name in ("README", "spark", "writing-a-sink", "writing-a-source")}
    assert {f"connectors/{path.name}" for path in (DOCS / "connectors").glob("*.md")} <= known | others
    assert SINKS.keys() == SINK_CONNECTORS.keys()


def test_an_option_that_a_page_lacks_is_noticed() -> None:
    text = "| `batch.rows` | how many |, `header.…`"
    assert undocumented(text, ("batch.rows", "batch", "header.…", "tries")) == ["batch", "tries"]
