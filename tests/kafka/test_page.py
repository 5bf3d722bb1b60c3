"""Every Python block of docs/kafka.md runs, against a topic of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_pages import BLOCK, DOCS

from .topic import Topic

pytestmark = pytest.mark.e2e


def test_the_page_runs(
    brokers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"bids-{tmp_path.name}-{id(tmp_path)}"
    bids = [{"auction": n % 3, "price": n, "at": f"2026-05-01 12:00:0{n}"} for n in range(9)]
    Topic(brokers, name, 1).send(bids)
    text = (DOCS / "kafka.md").read_text()
    code = "\n".join(block[1] for block in BLOCK.finditer(text))
    for told, here in (("'localhost:9092'", f"'{brokers}'"), ('"localhost:9092"', f'"{brokers}"')):
        assert told in code
        code = code.replace(told, here)
    for told in ("topic = 'bids'", '"bids", {'):
        assert told in code
        code = code.replace(told, told.replace("bids", name, 1))
    found: dict[str, Any] = {}
    exec(compile(code, "kafka.md", "exec"), found)
    found["pond"].close()
    said = capsys.readouterr().out
    assert "[(0, 6, 3), (1, 7, 3), (2, 8, 3)]" in said
    rows = sorted(found["pond"].read("counts").to_pylist(), key=lambda row: row["auction"])
    assert rows == [{"auction": n, "bids": 3} for n in range(3)]
