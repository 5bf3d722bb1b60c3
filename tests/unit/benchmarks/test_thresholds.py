"""The benchmark of thresholds: which there are, how values take turns, and that each value gives the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks import thresholds
from millpond import tuning


def test_groups_are_chosen_by_name() -> None:
    assert thresholds.choose("all") == list(thresholds.CASES)
    assert thresholds.choose("join, scan") == ["join", "scan"]
    with pytest.raises(ValueError, match="no thresholds named 'x'"):
        thresholds.choose("x")


def test_values_are_set_for_a_call_and_put_back() -> None:
    before, seen = tuning.SCAN_MERGE_ROWS_MAX, []
    values = {"few": {"SCAN_MERGE_ROWS_MAX": 1}, "many": {"SCAN_MERGE_ROWS_MAX": 9}}

    def call() -> None:
        seen.append(tuning.SCAN_MERGE_ROWS_MAX)
        for _ in range(100_000):  # long enough for the clock
            pass

    found = thresholds.measured(thresholds.Case("SCAN_MERGE_ROWS_MAX", "counting", values, call), 2)
    assert set(seen) == {1, 9} and list(found.us) == ["few", "many"]
    assert before == tuning.SCAN_MERGE_ROWS_MAX


@pytest.mark.parametrize("group", ["compare", "lookup", "narrow"])
def test_all_values_give_the_same_rows(group: str) -> None:
    case = next(iter(thresholds.CASES[group]()))
    results = []
    for values in case.values.values():
        with thresholds.thresholds(values):
            results.append(plain(case.call()))
    assert results[1:] == results[:-1]


def plain(value: Any) -> Any:
    if isinstance(value, pa.Table):
        return value.to_pydict()
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return plain(value.columns if hasattr(value, "columns") else value.table)


def test_every_threshold_has_a_measurement() -> None:
    """Whoever adds a threshold writes the figure, or the decision that has it, beside it."""
    assert "not measured" not in Path(tuning.__file__).read_text().lower()
