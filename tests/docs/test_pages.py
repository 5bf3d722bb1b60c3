"""Every Python block of a page of the documentation runs: in order, in one module, in an empty folder."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from tests.docs import test_source_pages

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {  # with how many blocks there are at least
    "backup.md": 2,
    "connectors/README.md": 1,
    "connectors/callback.md": 3,
    "connectors/delta.md": 1,
    "connectors/files.md": 1,
    "connectors/iceberg.md": 1,
    "connectors/http.md": 1,
    "connectors/pond.md": 1,
    "connectors/writing-a-sink.md": 2,
    "elasticity.md": 1,
    "user-functions.md": 8,
    "serving/flight.md": 1,
    "serving/http.md": 4,
    "serving/security.md": 1,
    "event-time.md": 13,
    "guide.md": 5,
    "load-shedding.md": 2,
    "process.md": 9,
    "sql.md": 8,
    "state.md": 6,
    "synopses.md": 2,
    "testing.md": 5,
    "time-machine.md": 6,
    "transactions.md": 3,
    "watermarks.md": 7,
}
# A file for the commands of the page; a name that is made up; servers that tests/kafka and tests/e2e start.
ELSEWHERE = {"cli.md", "format.md", "kafka.md", "connectors/postgres.md", "connectors/postgres-cdc.md"}
ELSEWHERE |= {"connectors/kafka.md", "connectors/kafka-formats.md", "connectors/spark.md"}
ELSEWHERE |= {"connectors/foreach-batch.md", "connectors/jdbc.md"}  # tests/spark
SOURCES = {f"connectors/{page}" for page in test_source_pages.PAGES}
BLOCK = re.compile(r"```python\n(.*?)```", re.S)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text()
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= PAGES[page]
    module = types.ModuleType(f"page_{re.sub('[-/]', '_', page.removesuffix('.md'))}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    for block in blocks:
        above = "\n" * text.count("\n", 0, block.start(1))  # so that errors name the line of the page
        exec(compile(above + block[1], str(DOCS / page), "exec", dont_inherit=True), module.__dict__)


def test_no_page_is_left_out() -> None:
    pages = [*DOCS.glob("*.md"), *DOCS.glob("connectors/*.md"), *DOCS.glob("serving/*.md")]
    with_code = {str(p.relative_to(DOCS)) for p in pages if BLOCK.search(p.read_text())}
    assert with_code == PAGES.keys() | ELSEWHERE | SOURCES
