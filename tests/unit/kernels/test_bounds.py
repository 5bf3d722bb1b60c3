"""Bounds of several streams together (laws 1 and 8)."""

from __future__ import annotations

import pytest

from millpond.kernels.bounds import Bound, of_all


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [("open", "closed", "open"), ("closed", "closed", "closed"), ("", "closed", ""), ("", "open", "open")],
)
def test_windows_of_a_union_are_open_while_those_of_one_input_are(one: str, other: str, both: str) -> None:
    found = of_all([[Bound("end", (("a", 0),), 4, True, one)], [Bound("end", (("b", 1),), 6, True, other)]])  # type: ignore[arg-type]
    assert found == (Bound("end", (("a", 0), ("b", 1)), 2, True, both),)  # type: ignore[arg-type]


def test_off_the_grid_and_without_a_bound_of_each() -> None:
    grid, plain = Bound("end", (("a", 0),), 4, True), Bound("end", (("b", 0),), 6)
    assert of_all([[grid], [plain]]) == (Bound("end", (("a", 0), ("b", 0)), 6),)
    assert of_all([[grid], []]) == ()
