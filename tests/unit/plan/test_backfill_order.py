"""In which order a fill reads its tables."""

from __future__ import annotations

import pyarrow as pa

from millpond.operators.join import Join, Kind
from millpond.operators.operator import Shape
from millpond.operators.state_scan import StateScan
from millpond.plan.backfill_order import backfill_order
from millpond.plan.nodes import Node, Plan
from millpond.state.tables.table_spec import TableSpec

SCHEMA = pa.schema([pa.field("k", pa.int64())])


def plan_of(*joins: tuple[str, Kind, str, str]) -> Plan:
    """Joins (step, kind, left, right) over scans, which are all other names."""
    nodes: dict[str, Node] = {}
    for step, kind, *sides in joins:
        for name in sides:
            if name not in nodes:
                scan = StateScan(TableSpec(f"{name}/out", SCHEMA, ("k",)), Shape(SCHEMA, False))
                nodes[name] = Node(name, scan, (), scan.bind(name, ()))
        columns = (("k", 0, "k"),) if kind in ("semi", "anti") else (("k", 0, "k"), ("k2", 1, "k"))
        join = Join(("k",), ("k",), kind, columns)
        shapes = tuple(nodes[name].binding.shape for name in sides)
        nodes[step] = Node(step, join, tuple(sides), join.bind(step, shapes))
    return Plan(nodes, {})


def test_small_tables_come_first() -> None:
    plan = plan_of(("ab", "inner", "a", "b"), ("abc", "semi", "ab", "c"))
    assert backfill_order(plan, {"a": 3, "b": 2, "c": 1}) == ["c", "b", "a"]


def test_what_a_join_looks_for_comes_before_rows_that_it_would_show_alone() -> None:
    sizes = {"a": 1, "b": 2}
    assert backfill_order(plan_of(("ab", "left", "a", "b")), sizes) == ["b", "a"]
    assert backfill_order(plan_of(("ab", "anti", "a", "b")), sizes) == ["b", "a"]
    assert backfill_order(plan_of(("ab", "right", "a", "b")), sizes) == ["a", "b"]
    assert backfill_order(plan_of(("ab", "inner", "a", "b")), sizes) == ["a", "b"]


def test_where_each_waits_for_the_other_the_smaller_comes_first() -> None:
    assert backfill_order(plan_of(("ab", "full", "a", "b")), {"a": 2, "b": 1}) == ["b", "a"]
    plan = plan_of(("ab", "left", "a", "b"), ("ba", "anti", "b", "a"))
    assert backfill_order(plan, {"a": 2, "b": 1}) == ["b", "a"]


def test_a_table_on_both_sides_waits_for_nothing() -> None:
    plan = plan_of(("aa", "anti", "a", "a"), ("b", "inner", "aa", "c"))
    assert backfill_order(plan, {"a": 2, "c": 9}) == ["a", "c"]
