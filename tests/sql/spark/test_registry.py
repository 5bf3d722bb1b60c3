"""Spark's registry: docs/spark-functions.md is current, and recorded examples have Spark's answers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import millpond
from millpond.pond import Pond
from millpond.sql.dialects.spark.functions import registry, supported
from tests.sampling import first
from tests.sql.spark.comparison import answered, verdict


def _script() -> ModuleType:
    from pathlib import Path

    path = Path(__file__).parents[3] / "scripts/spark_functions.py"
    spec = importlib.util.spec_from_file_location("spark_functions", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


SCRIPT = _script()
RECORDED = SCRIPT.recorded()
ROWS = dict(
    zip(
        sorted(RECORDED), SCRIPT.PAGE.read_text("utf-8").split("|---|---|---|\n")[1].splitlines(), strict=True
    )
)


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("registry") / "pond", engine="inline") as made:
        yield made


def test_the_page_lists_every_function_of_spark() -> None:
    assert set(ROWS) == set(registry()) == set(RECORDED)
    for name, row in ROWS.items():
        assert ("| missing |" in row) == (not supported(name)), row


def test_no_example_has_another_answer() -> None:
    assert [row for row in ROWS.values() if "| different |" in row] == []


@pytest.mark.parametrize("part", first(1, range(8)))
def test_the_page_is_current(pond: Pond, part: int) -> None:
    for name in sorted(RECORDED)[part::8]:
        found, example = SCRIPT.state(pond, name, RECORDED[name])
        assert ROWS[name] == SCRIPT.row(name, found, example)


def test_a_wrong_answer_would_be_seen(pond: Pond) -> None:
    ours = answered(pond, "SELECT upper('a')")
    assert verdict({"columns": ["x"], "rows": [["A"]]}, ours) == "same"
    assert verdict({"columns": ["x"], "rows": [["B"]]}, ours) == "different"
    assert verdict({"error": "X"}, ours) == "lenient"
