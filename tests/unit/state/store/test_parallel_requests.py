"""Requests at once: in order, with their errors."""

from __future__ import annotations

import threading

import pytest

from millpond.state.store.parallel_requests import FEW, in_parallel


def test_answers_are_in_order_and_requests_overlap() -> None:
    gate = threading.Barrier(FEW + 1, timeout=10)

    def request(n: int) -> int:
        gate.wait()  # passes only if all requests run at the same time
        return n * n

    assert in_parallel(request, list(range(FEW + 1))) == [n * n for n in range(FEW + 1)]


@pytest.mark.parametrize("count", [2, 40])
def test_an_error_is_raised(count: int) -> None:
    def request(n: int) -> int:
        if n == 1:
            raise ValueError("no answer")
        return n

    with pytest.raises(ValueError, match="no answer"):
        in_parallel(request, list(range(count)))
