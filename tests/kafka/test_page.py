"""Every Python block of the pages on Kafka runs, against topics of a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_pages import BLOCK, DOCS

from .kafka_target import Committed
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


def test_the_page_on_sinks_runs(brokers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"totals-{tmp_path.name}-{id(tmp_path)}"
    code = "\n".join(block[1] for block in BLOCK.finditer((DOCS / "connectors" / "kafka.md").read_text()))
    assert 'KafkaSink("localhost:9092", "totals")' in code
    code = code.replace('"localhost:9092", "totals"', f'"{brokers}", "{name}"')
    found: dict[str, Any] = {}
    exec(compile(code, "kafka.md", "exec"), found)
    found["pond"].close()
    reader = Committed(brokers, name, 1)
    messages = reader.read()
    reader.close()
    assert [(m.key(), m.value()) for m in messages] == [(b'{"who":"ann"}', b'{"who":"ann","n":5}')]
