"""What code shows of its rows and states: the columns it reads, and that a state is never emptied.

Law: an answer holds for every call; any doubt gives the cautious one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from millpond import Process, ValueState
from millpond.process.bytecode_facts import always_set, columns_read, never_emptied
from millpond.process.function import Code

COLUMNS = ["card", "price", "count"]


def read(function: Any) -> set[str] | None:
    found = columns_read(Code(function, ()), COLUMNS)
    return None if found is None else set(found)


def reads_in_a_loop(row: Any) -> Any:
    for n in range(row.count):
        if n and row.price:
            yield n, row.price


def ignores(row: Any) -> None:
    return None


def test_columns_that_are_read() -> None:
    assert read(lambda row: row.price * 2) == {"price"}
    assert read(reads_in_a_loop) == {"count", "price"}
    assert read(ignores) == set()


class Reads(Process):
    n = ValueState(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        return row.card, self.n.value


def test_columns_that_a_class_reads() -> None:
    assert read(Reads()) == {"card"}


def hands_on(row: Any) -> Any:
    return str(row)


def by_name(row: Any) -> Any:
    return row["price"]


def asks(row: Any) -> Any:
    return getattr(row, "price")  # noqa: B009


def calls(row: Any) -> Any:
    return row.as_dict()


def unpacks(row: Any) -> Any:
    card, *_ = row
    return card


def keeps(row: Any) -> Any:
    other = row
    return other.price


def closes_over(row: Any) -> Any:
    return sorted([1], key=lambda n: row.price)


def is_changed(row: Any) -> Any:
    row = row.price
    return row


def looks(row: Any) -> Any:
    return locals(), row.price


def chooses(row: Any, other: Any = None) -> Any:
    return (row if row.price else other).card + row.price * 2 - row.price  # long: its end is compiled once


def no_column(row: Any) -> Any:
    return row.prize


def any_arguments(*rows: Any) -> Any:
    return rows


@functools.wraps(reads_in_a_loop)
def wrapped(row: Any) -> Any:
    return row.price


@pytest.mark.parametrize(
    "function",
    [
        hands_on,
        by_name,
        asks,
        calls,
        unpacks,
        keeps,
        closes_over,
        is_changed,
        looks,
        chooses,
        no_column,
        any_arguments,
        wrapped,
        functools.partial(reads_in_a_loop),
        len,
    ],
    ids=lambda function: getattr(function, "__name__", "partial"),
)
def test_in_doubt_all_columns_are_read(function: Any) -> None:
    assert read(function) is None


def test_under_a_debugger_rows_are_whole() -> None:
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        found = read(reads_in_a_loop)
    finally:
        sys.settrace(before)
    assert found is None


# ---------------------------------------------------------------- states


def emptied(function: Callable[..., Any]) -> set[str]:
    return set(never_emptied(Code(function, (("n", "n"), ("m", "m")))))


def adds(row: Any, n: Any, m: Any) -> Any:
    n.value += row.x
    m.value = m.value * 2 - n.value
    if row.x:
        n.value = 0
    return n.value


def reads_one(row: Any, n: Any, *, m: Any) -> Any:
    return n.value


def clears(row: Any, n: Any, m: Any) -> Any:
    n.value += 1
    m.clear()


def gives_away(row: Any, n: Any, m: Any) -> Any:
    n.value += 1
    return str(m)


def test_states_that_are_added_to_are_never_emptied() -> None:
    assert emptied(adds) == {"n", "m"}
    assert emptied(reads_one) == {"n", "m"}
    assert emptied(clears) == {"n"}
    assert emptied(gives_away) == {"n"}


def sets_none(row: Any, n: Any, m: Any) -> Any:
    n.value = None


def sets_any(row: Any, n: Any, m: Any) -> Any:
    n.value = row.x


def sets_called(row: Any, n: Any, m: Any) -> Any:
    n.value = max(n.value, 1)


def sets_either(row: Any, n: Any, m: Any) -> Any:
    n.value = row.x + 1 if row.x else None


def sets_or(row: Any, n: Any, m: Any) -> Any:
    n.value = row.y or row.x + 1


def sets_both(row: Any, n: Any, m: Any) -> Any:
    n.value, m.value = None, row.x + 1


def sets_chained(row: Any, n: Any, m: Any) -> Any:
    n.value = m.value = None


def sets_in_a_loop(row: Any, n: Any, m: Any) -> Any:
    for n.value in [None]:
        pass


def sets_an_alias(row: Any, n: Any, m: Any) -> Any:
    for other in (n, m):
        other.value = None


def sets_the_other(row: Any, n: Any, m: Any) -> Any:
    m.value = row.x
    n.value += 1


def test_what_one_state_is_set_to_says_nothing_of_another() -> None:
    assert emptied(sets_the_other) == {"n"}


def takes_them_all(row: Any, **states: Any) -> Any:
    states["n"].value += 1


@pytest.mark.parametrize(
    "function",
    [
        sets_none,
        sets_any,
        sets_called,
        sets_either,
        sets_or,
        sets_both,
        sets_chained,
        sets_in_a_loop,
        sets_an_alias,
        takes_them_all,
        functools.partial(adds),
    ],
    ids=lambda function: getattr(function, "__name__", "partial"),
)
def test_in_doubt_any_value_is_set(function: Any) -> None:
    assert "n" not in emptied(function)


def of_class(kind: type[Process]) -> set[str]:
    return set(never_emptied(Code(kind(), (("n", "n"), ("m", "m")))))


class Adds(Process):
    n = ValueState(int, default=0)
    m = ValueState(int, default=0)
    most = 5

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n.value += row.x
        return self.total(row.x)

    def total(self, x: int) -> int:
        self.m.value = self.m.value + x
        return min(self.m.value, self.most)


class InAMethod(Adds):
    def forget(self) -> None:
        self.n.value = None


class Clears(Adds):
    def forget(self) -> None:
        self.n.clear()


class GivesItself(Adds):
    def forget(self) -> None:
        print(self)


class InTheDict(Adds):
    def forget(self) -> None:
        self.__dict__["n"].value += 1


class ByProperty(Adds):
    @property
    def own(self) -> Any:
        return self.n


class InALambda(Adds):
    def forget(self) -> Any:
        return lambda: self.n.clear()


def test_states_of_a_class() -> None:
    assert of_class(Adds) == {"n", "m"}
    assert of_class(Clears) == of_class(InAMethod) == {"m"}


@pytest.mark.parametrize("kind", [GivesItself, InTheDict, ByProperty, InALambda])
def test_in_doubt_any_value_is_set_in_a_class(kind: type[Process]) -> None:
    assert of_class(kind) == set()


# ---------------------------------------------------------------- set by every row


def always(function: Callable[..., Any]) -> set[str]:
    return set(always_set(Code(function, (("n", "n"), ("m", "m")))))


def second_after_a_branch(row: Any, n: Any, m: Any) -> Any:
    n.value += row.x
    if row.x:
        m.value = 1


def after_a_choice(row: Any, n: Any, m: Any) -> Any:
    n.value = row.x if row.x else 1
    m.value = 2


def may_be_caught(row: Any, n: Any, m: Any) -> Any:
    try:
        n.value += row.x
        m.value = 1
    except TypeError:
        pass


def after_an_end(row: Any, n: Any, m: Any) -> Any:
    yield row
    n.value = m.value = 1


def nested(row: Any, n: Any, m: Any) -> Any:
    n.value += m.value
    m.other += 1
    row.inner.value += 1
    return (n.value, m.value)


def test_states_set_before_any_branch_are_always_set() -> None:
    assert always(adds) == {"n", "m"}
    assert always(second_after_a_branch) == {"n"}
    assert always(after_a_choice) == set()
    assert always(may_be_caught) == set()
    assert always(after_an_end) == set()
    assert always(nested) == {"n"}
    assert set(always_set(Code(Adds(), (("n", "n"), ("m", "m"))))) == {"n"}
