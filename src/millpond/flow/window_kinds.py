"""The windows that `window()` accepts: assigners, and two kinds that it turns into steps of their own."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.kernels.window_assigners import WindowAssigner


@dataclass(frozen=True)
class Counting:
    """Windows of `n` rows that start every `step` rows: the step `operators.count_windows` counts them."""

    n: int
    step: int
    timeout_us: int | None = None


@dataclass(frozen=True)
class GapExpression:
    """Sessions whose gap is an SQL expression of the row: a step computes it as a column (`GapColumn`)."""

    expression: str


Windows = WindowAssigner | Counting | GapExpression
