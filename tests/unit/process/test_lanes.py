"""User code in lanes gives what it gives row by row (law 1), or is not run in lanes at all.

The oracle is Python: the same code, called for each row of each key in order,
with plain objects in the place of row and states.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import Process, ValueState, tuning
from millpond.kernels.expression_kernel import canonical_rows
from millpond.process.function import Code
from millpond.process.lanes import run as lanes
from millpond.process.lanes.allowed import allowed
from millpond.process.lanes.rounds import rounds, rows_per_key_max
from millpond.process.outputs import NOT_ARROW, columns
from millpond.process.row_order import Ordered
from millpond.process.spec import StateSpec

INTS, FLOATS = pa.schema([("value", pa.int64())]), pa.schema([("value", pa.float64())])
SPECS = {
    "n": StateSpec("n", "value", "scalar", INTS, default=0),
    "m": StateSpec("m", "value", "scalar", INTS),
    "f": StateSpec("f", "value", "scalar", FLOATS, default=0.5),
}
SCHEMA = pa.schema([("a", pa.int64()), ("x", pa.int64()), ("y", pa.float64()), ("t", pa.string())])


@dataclass
class Held:
    """A state of all keys, as a column; what `ColumnHandle` shows of a table."""

    spec: StateSpec
    old: list[Any]
    new: pa.Array | None = None
    found: Any = field(init=False)

    def __post_init__(self) -> None:
        self.found = np.array([v is not None for v in self.old], np.bool_)

    @property
    def values(self) -> pa.Array:
        array = pa.array(self.old, self.spec.fields[0].type)
        return array if self.spec.default is None else array.fill_null(self.spec.default)

    @values.setter
    def values(self, given: pa.Array) -> None:
        self.new = given

    def changes(self) -> list[Any]:
        return []

    def now(self) -> list[Any]:
        return self.old if self.new is None else self.new.to_pylist()


class Cell:
    def __init__(self, held: Any, default: Any) -> None:
        self.held, self.default = held, default

    @property
    def value(self) -> Any:
        return self.default if self.held is None else self.held

    @value.setter
    def value(self, value: Any) -> None:
        self.held = value


def in_lanes(function: Any, rows: pa.Table, key: list[int], before: dict[str, list[Any]]) -> Any:
    """Rows given and states after, or None."""
    code = Code(function, tuple((name, name) for name in before))
    assert allowed(code) or sys.gettrace() is not None  # Hypothesis traces what it shrinks
    numbers = np.array(key, np.int64)
    order = np.argsort(numbers, kind="stable")
    ordered = Ordered(rows, order, numbers[order])
    keys = len(next(iter(before.values())))
    some = rounds(np.searchsorted(ordered.keys, np.arange(keys + 1)))
    held = {name: Held(SPECS[name], old) for name, old in before.items()}
    mine = {
        name: Held(each.spec, [each.old[k] for k in sorted(some.keys.tolist())])
        for name, each in held.items()
    }
    lanes._unfit.clear()
    found = lanes.run(code, [(each.spec, each) for each in mine.values()], SCHEMA, ordered, some)  # type: ignore[misc]
    if found is None:
        return None
    assert len(some.keys) == len(set(key)), "no key is left out of a test"
    rows_of: dict[int, list[Any]] = defaultdict(list)
    made = zip(*(column.to_pylist() for column in found.columns), strict=True)
    for one, item in zip(found.keys.tolist(), made, strict=True):
        rows_of[one].append(item)
    after = {name: list(each.old) for name, each in held.items()}
    for name, each in mine.items():
        for k, value in zip(sorted(some.keys.tolist()), each.now(), strict=True):
            after[name][k] = value
    return sorted(rows_of.items()), after


def row_by_row(function: Any, rows: pa.Table, key: list[int], before: dict[str, list[Any]]) -> Any:
    """The same by plain Python; None where something fails."""
    after = {name: list(old) for name, old in before.items()}
    rows_of: dict[int, list[Any]] = defaultdict(list)
    for k, row in zip(key, canonical_rows(rows).to_pylist(), strict=True):
        cells = {name: Cell(old[k], SPECS[name].default) for name, old in after.items()}
        try:
            item = function(SimpleNamespace(**row), **cells)
            if item is not None:
                made = columns([item], SCHEMA)
                rows_of[k].append(tuple(column[0].as_py() for column in made))
            for name, cell in cells.items():
                kept = pa.array([cell.held], SPECS[name].fields[0].type)
                if cell.held is not None and type(kept[0].as_py()) is not type(cell.held):
                    return None  # what the next row sees is another value than the next epoch does
                after[name][k] = cell.held
        except (*NOT_ARROW, ArithmeticError):
            return None
    return sorted(rows_of.items()), after


# ---------------------------------------------------------------- random code

ATOMS = ["row.a", "row.b", "row.g", "row.big", "n.value", "f.value", "v", "3", "-7", "0.25", "row.ok"]


def expression(depth: int) -> st.SearchStrategy[str]:
    if not depth:
        return st.sampled_from(ATOMS)
    less = expression(depth - 1)
    return st.one_of(
        st.sampled_from(ATOMS),
        st.tuples(less, st.sampled_from(["+", "-", "*", "//", "%", "/"]), less).map(
            lambda t: f"({' '.join(t)})"
        ),
        st.tuples(st.sampled_from(["min", "max"]), less, less).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        less.map(lambda e: f"abs({e})"),
        less.map(lambda e: f"(-{e})"),
        st.tuples(less, condition(depth - 1), less).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
    )


def condition(depth: int) -> st.SearchStrategy[str]:
    few = expression(min(depth, 1))
    plain = st.one_of(
        st.tuples(few, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), few).map(" ".join),
        st.sampled_from(
            ["row.t == 'one'", "row.t != ''", "row.ok", "m.value is None", "m.value is not None", "row.t"]
        ),
        st.sampled_from(["row.a in (1, 2)", "not row.ok", "0 < row.a <= 3"]),
    )
    if not depth:
        return plain
    less = condition(depth - 1)
    return st.one_of(
        plain,
        st.tuples(less, st.sampled_from(["and", "or"]), less).map(lambda t: f"({' '.join(t)})"),
        less.map(lambda c: f"not ({c})"),
    )


def statement(depth: int) -> st.SearchStrategy[list[str]]:
    e, c = expression(2), condition(1)
    plain = st.one_of(
        st.tuples(st.sampled_from(["n", "f", "m"]), e).map(lambda t: [f"{t[0]}.value = {t[1]}"]),
        st.tuples(st.sampled_from(["n", "f"]), st.sampled_from(["+=", "-="]), e).map(
            lambda t: [f"{t[0]}.value {t[1]} {t[2]}"]
        ),
        e.map(lambda text: [f"v = {text}"]),
        c.map(lambda text: [f"if {text}:", "    return None"]),
    )
    if not depth:
        return plain
    block = statement(depth - 1)
    return st.one_of(
        plain,
        st.tuples(c, block).map(lambda t: [f"if {t[0]}:", *("    " + line for line in t[1])]),
        st.tuples(c, block, block).map(
            lambda t: [
                f"if {t[0]}:",
                *("    " + line for line in t[1]),
                "else:",
                *("    " + line for line in t[2]),
            ]
        ),
    )


RETURNS = st.one_of(
    st.tuples(expression(2), expression(1)).map(lambda t: f"return row.a, {t[0]}, {t[1]}, row.t"),
    st.tuples(expression(1), condition(0)).map(
        lambda t: f"return {{'t': 'high' if {t[1]} else None, 'a': row.a, 'y': row.g, 'x': {t[0]}}}"
    ),
)


def code_of(body: list[str]) -> Any:
    text = "\n    ".join(["def on_row(row, n, m, f):", "v = 1", *body])
    space: dict[str, Any] = {}
    exec(text, space)
    return space["on_row"]


programs = st.tuples(st.lists(statement(1), max_size=3), RETURNS).map(
    lambda t: [line for lines in t[0] for line in lines] + [t[1]]
)
small = st.integers(-4, 9)
table_rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(0, 3),
            "a": small,
            "b": small,
            "g": st.one_of(st.sampled_from([0.0, 1.5, -2.0, 1e300]), st.floats()),
            "big": st.one_of(small, st.sampled_from([2**62, -(2**63), 2**53 + 1])),
            "ok": st.booleans(),
            "t": st.sampled_from(["", "one", "two"]),
        }
    ),
    min_size=1,
    max_size=24,
)
ROWS = pa.schema(
    [
        ("k", pa.int64()),
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("g", pa.float64()),
        ("big", pa.int64()),
        ("ok", pa.bool_()),
        ("t", pa.string()),
    ]
)
befores = st.fixed_dictionaries(
    {
        "n": st.lists(st.one_of(st.none(), small), min_size=4, max_size=4),
        "m": st.lists(st.one_of(st.none(), small), min_size=4, max_size=4),
        "f": st.lists(st.one_of(st.none(), st.floats(-9, 9)), min_size=4, max_size=4),
    }
)


@pytest.fixture(autouse=True)
def all_keys_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LANES_ROUND_NS", 0)


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(program=programs, made=table_rows, before=befores)
def test_random_code(program: list[str], made: list[dict[str, Any]], before: dict[str, list[Any]]) -> None:
    function = code_of(program)
    rows = pa.Table.from_pylist(made, ROWS)
    key = [row["k"] for row in made]
    found = in_lanes(function, rows.drop_columns(["k"]), key, before)
    if found is not None:
        assert repr(found) == repr(row_by_row(function, rows, key, before)), "\n".join(program)


def count(row: Any, n: Any, m: Any, f: Any) -> Any:
    n.value += 1
    f.value += row.g
    if row.t == "one":
        return None
    if m.value is None or row.b > m.value:
        m.value = row.b
    return row.a, n.value, f.value, row.t


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(made=table_rows, before=befores)
def test_code_of_the_usual_kind_runs_in_lanes(
    made: list[dict[str, Any]], before: dict[str, list[Any]]
) -> None:
    rows = pa.Table.from_pylist(made, ROWS)
    key = [row["k"] for row in made]
    found = in_lanes(count, rows, key, before)
    assert found is not None
    assert repr(found) == repr(row_by_row(count, rows, key, before))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("row.big + 1", 2**63 - 1),  # no number of 64 bits
        ("row.big * 2", 2**62),
        ("-row.big", -(2**63)),
        ("row.big / 2", 2**53 + 1),  # Python divides what no float holds
        ("row.b // row.a", 1),  # by zero
        ("row.g // 2", 1),
        ("row.big", None),  # NULL
        ("row.nothing", 1),
        ("row.t + 'x'", 1),
    ],
)
def test_what_lanes_cannot_tell_goes_row_by_row(text: str, value: Any) -> None:
    made = {"k": 0, "a": 0, "b": 1, "g": 1.0, "big": value, "ok": True, "t": ""}
    rows = pa.Table.from_pylist([made], ROWS)
    before: dict[str, list[Any]] = {name: [None] * 4 for name in SPECS}
    assert in_lanes(code_of([f"return row.a, {text}, 0.5, row.t"]), rows, [0], before) is None


@pytest.mark.parametrize(
    ("column", "kept"),
    [
        (pa.array([1], pa.timestamp("us")), True),
        (pa.array([1], pa.timestamp("ms", "Europe/Paris")), True),
        (pa.array([2**60], pa.timestamp("us")), False),  # no year of Python's
        (pa.array([1], pa.timestamp("ns")), False),  # Python cuts it
        (pa.array([1], pa.date32()), False),
        (pa.array([[1]], pa.list_(pa.int64())), False),
        (pa.array([b"x"]), True),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_what_is_handed_on_as_it_is(column: pa.Array, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"a": pa.array([1], pa.int32()), "z": column})
    monkeypatch.setattr(sys.modules[__name__], "SCHEMA", pa.schema([("z", column.type)]))
    before: dict[str, list[Any]] = {name: [None] for name in SPECS}
    found = in_lanes(code_of(["return (row.z,)"]), rows, [0], before)
    assert (found is not None) == kept
    assert not kept or found[0] == [(0, [(column[0].as_py(),)])]


@pytest.mark.parametrize("name", ["_turn", "turned", "ask", "row"])
def test_a_row_has_no_names_but_its_columns(name: str) -> None:
    rows = pa.table({"a": pa.array([1], pa.int32()), name: [2]})
    before: dict[str, list[Any]] = {name: [None] for name in SPECS}
    function = code_of([f"if row.{name} == 2:", "    return row.a, 1, 0.5, 'x'", "return None"])
    assert in_lanes(function, rows, [0], before)[0] == [(0, [(1, 1, 0.5, "x")])]
    assert in_lanes(function, rows.rename_columns(["a", "b"]), [0], before) is None


# ---------------------------------------------------------------- which code

LIMIT, LIMITS = 5, [5]


class Plain(Process):
    n = ValueState(int, default=0)
    most = 3

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n.value += min(row.a, self.most, LIMIT)
        return (self.n.value,) if self.n.value > 0 else None


class Looks(Plain):
    @property
    def least(self) -> int:
        return 1

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (self.least,)


class Caches(Plain):
    def on_row(self, row: Any, ctx: Any) -> Any:
        self._last = row.a
        return (1,)


class Peeks(Plain):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


class Calls(Plain):
    def on_row(self, row: Any, ctx: Any) -> Any:
        return self.other(row)

    def other(self, row: Any) -> Any:
        return (row.a,)


def test_classes() -> None:
    states = (("n", "n"),)
    assert allowed(Code(Plain(), states))
    for other in (Looks(), Caches(), Peeks(), Calls()):
        assert not allowed(Code(other, states)), type(other).__name__


def loops(row: Any) -> Any:
    total = 0
    while total < row.a:
        total += 1
    return (total,)


def catches(row: Any) -> Any:
    try:
        return (row.a / row.b,)
    except ZeroDivisionError:
        return None


def several(row: Any) -> Any:
    yield (row.a,)


def lists(row: Any) -> Any:
    return [(row.a,)]


def tells(row: Any) -> Any:
    LIMITS.append(row.a)


def reads_a_list(row: Any) -> Any:
    return (LIMITS, row.a)


def is_the_same(row: Any) -> Any:
    return (row.a is row.b,)


def raises(row: Any) -> Any:
    raise ValueError


def powers(row: Any) -> Any:
    return (row.a**2,)


def shows(row: Any) -> Any:
    return (f"{row.a}",)


@pytest.mark.parametrize(
    "function",
    [loops, catches, several, lists, tells, reads_a_list, is_the_same, raises, powers, shows],
    ids=lambda f: f.__name__,
)
def test_code_that_is_not_run_in_lanes(function: Any) -> None:
    assert not allowed(Code(function, ()))


# ---------------------------------------------------------------- rounds


def test_a_key_with_many_more_rows_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    counts = np.array([10] * 1000 + [100_000])
    assert rows_per_key_max(counts) == 10
    found = rounds(np.concatenate([[0], np.cumsum(counts)]))
    assert sorted(found.keys.tolist()) == list(range(1000))
    assert found.sizes == [1000] * 10
    assert sorted(found.places.tolist()) == list(range(10_000))


def test_few_keys_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert rows_per_key_max(np.array([500, 400])) == 0
    assert rows_per_key_max(np.array([], np.int64)) == 0
