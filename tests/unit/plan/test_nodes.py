"""Plans: equal sub-plans are one node, sources never are, names are used once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.operators.filter import Filter
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan, SinkNode, View
from millpond.sources.inbox_table import InboxTable
from millpond.sources.memory import MemorySource

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def scan() -> Scan:
    return Scan(MemorySource(SCHEMA), SCHEMA, True)


def test_equal_steps_are_one_node() -> None:
    plan, _ = Plan().with_node("in", scan(), ())
    plan, first = plan.with_node("a", Filter("v > 1"), ("in",))
    plan, second = plan.with_node("b", Filter("v > 1"), ("in",))
    assert (first, second) == ("a", "a")
    assert list(plan.nodes) == ["in", "a"]


def test_two_sources_of_one_schema_stay_two() -> None:
    """Which rows a source gives is not a matter of its settings: sharing goes by the name."""
    plan, first = Plan().with_node("a", scan(), ())
    plan, second = plan.with_node("b", scan(), ())
    assert (first, second) == ("a", "b")
    tables, one = Plan().with_node("t", Scan(InboxTable(SCHEMA), SCHEMA, False), ())
    tables, two = tables.with_node("u", Scan(InboxTable(SCHEMA), SCHEMA, False), ())
    assert (one, two) == ("t", "u")


def test_a_step_id_is_used_once() -> None:
    plan, _ = Plan().with_node("in", scan(), ())
    plan, _ = plan.with_node("f", Filter("v > 1"), ("in",))
    with pytest.raises(InvalidError, match="step id 'f' is used twice") as caught:
        plan.with_node("f", Filter("v > 2"), ("in",))
    assert caught.value.step == "f"
    with pytest.raises(InvalidError, match="used twice"):
        plan.with_node("in", Scan(MemorySource(SCHEMA), SCHEMA, False), ())


def test_inputs_come_before_their_consumers() -> None:
    plan, _ = Plan().with_node("in", scan(), ())
    for number in range(4):
        plan, _ = plan.with_node(
            f"f{number}", Filter(f"v > {number}"), (f"f{number - 1}" if number else "in",)
        )
    backwards = Plan(dict(reversed(list(plan.nodes.items()))))
    assert [n.step for n in backwards.topological()] == ["in", "f0", "f1", "f2", "f3"]
    assert plan.consumers() == {
        "in": [("f0", 0)],
        "f0": [("f1", 0)],
        "f1": [("f2", 0)],
        "f2": [("f3", 0)],
        "f3": [],
    }


def test_views_and_sinks_are_named_once() -> None:
    plan = Plan().with_view(View("v", "a", "a/rows"))
    assert plan.with_view(View("v", "a", "a/rows")).views == plan.views
    with pytest.raises(InvalidError, match="view 'v' is defined twice"):
        plan.with_view(View("v", "b", "b/rows"))
    target = object()
    plan = plan.with_sink(SinkNode("s", "v", target))
    assert plan.with_sink(SinkNode("s", "v", target)).sinks == plan.sinks
    with pytest.raises(InvalidError, match="sink 's' is defined twice"):
        plan.with_sink(SinkNode("s", "v", object()))
