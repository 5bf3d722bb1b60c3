"""State over code changes: what may change, what is refused and how, and what a plan remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.flow.stream import Stream
from millpond.operators.operator import Wake
from millpond.operators.scan import Scan
from millpond.ordering import Order
from millpond.plan import codec
from millpond.plan.compatibility import check_compatible
from millpond.plan.nodes import Plan
from millpond.plan.tables import table_specs
from millpond.sources.memory import MemorySource
from millpond.state.tables.table_spec import TableSpec
from tests.unit.plan.keeping import Keep, Kept, keep

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64())])
N = pa.field("n", pa.int64())
LAST = Kept("last")


def made(*states: Kept) -> Plan:
    builder = Builder()
    source = MemorySource(SCHEMA)
    keep(Stream(builder, builder.add("in", Scan(source, SCHEMA, True), (), "in")), *states)
    return builder.plan


def going_on(*plans: Plan) -> Plan:
    """One code change after the other, each through the catalog."""
    held = plans[0]
    for plan in plans[1:]:
        held = check_compatible(codec.loads(codec.dumps(held)), plan, {"in"})
    return held


def spec(plan: Plan, name: str) -> TableSpec:
    return table_specs(plan)[name]


def wider(**defaults: Any) -> Kept:
    columns = pa.schema([N, *(pa.field(name, pa.string()) for name in defaults)])
    return Kept("last", columns, tuple((n, v) for n, v in defaults.items() if v is not None))


def test_the_same_states_go_on_and_leave_no_trace() -> None:
    plan = made(LAST)
    assert going_on(plan, plan, plan) is plan


def test_columns_may_come_with_a_default_or_nullable() -> None:
    plan = going_on(made(LAST), made(wider(a="x", b=None)))
    assert spec(plan, "keep/last").schema.names == ["k", "n", "a", "b"]
    assert spec(plan, "keep/last").defaults == (("a", "x"),)


def test_a_column_keeps_the_default_it_came_with() -> None:
    """Else a run from before it would give one value before it is merged, and another after."""
    plan = going_on(made(LAST), made(wider(a="x")), made(wider(a="y")), made(wider(a="z", b="w")))
    assert spec(plan, "keep/last").defaults == (("a", "x"), ("b", "w"))
    late = going_on(made(LAST), made(wider(a=None)), made(wider(a="y")))
    assert spec(late, "keep/last").defaults == ()


def test_states_may_come_and_go() -> None:
    plan = going_on(made(LAST), made(LAST, Kept("more")), made(Kept("more")))
    assert "keep/last" not in table_specs(plan)
    assert plan.left["keep/last"].schema.names == ["k", "n"]
    back = going_on(plan, made(Kept("more"), LAST))
    assert back.left == {}


def test_a_state_that_left_comes_back_only_as_it_was() -> None:
    changed = Kept("last", pa.schema([("n", pa.string())]))
    with pytest.raises(InvalidError, match="state 'last' of step 'keep' cannot continue: column 'n'"):
        going_on(made(LAST), made(Kept("more")), made(Kept("more")), made(changed))
    ordered = Kept("last", pa.schema([("entry", pa.int64()), N]), (), (Order("entry"),))
    with pytest.raises(InvalidError, match="its order changed"):
        going_on(made(LAST), made(Kept("more")), made(ordered))


def test_value_columns_may_leave_but_not_come_back() -> None:
    plan = going_on(made(wider(a="x")), made(LAST), made(LAST))
    assert plan.left["keep/last"].schema.names == ["k", "n", "a"]
    with pytest.raises(InvalidError, match="column 'a' was removed before") as caught:
        going_on(plan, made(wider(a="x")))
    assert "migrate" in (caught.value.hint or "")
    other = going_on(plan, made(wider(b="x")))
    assert other.left["keep/last"].schema.names == ["k", "n", "b", "a"]
    anew = check_compatible(other, made(wider(a="x")), {"in"}, rewritten={"keep/last"})
    assert anew.left == {}


def test_another_type_is_refused_with_both_and_what_to_do() -> None:
    with pytest.raises(InvalidError) as caught:
        going_on(made(LAST), made(Kept("last", pa.schema([("n", pa.string())]))))
    error = caught.value
    assert error.message == "state 'last' of step 'keep' cannot continue: column 'n' has another type"
    assert error.detail == "int64 in the pond, string in this pipeline"
    assert "pond.migrate('keep', fn, state='last')" in (error.hint or "")
    assert error.step == "keep"


def test_a_pickle_is_no_plain_bytes() -> None:
    plain = pa.field("n", pa.binary())
    pickled = plain.with_metadata({b"millpond": b"pickle"})
    with pytest.raises(InvalidError) as caught:
        going_on(made(Kept("last", pa.schema([plain]))), made(Kept("last", pa.schema([pickled]))))
    assert caught.value.detail == "binary in the pond, pickle in this pipeline"


def test_a_new_column_that_must_have_a_value_needs_a_default() -> None:
    columns = pa.schema([N, pa.field("a", pa.string(), nullable=False)])
    with pytest.raises(InvalidError, match="column 'a' is new and has no default"):
        going_on(made(LAST), made(Kept("last", columns)))
    going_on(made(LAST), made(Kept("last", columns, (("a", "x"),))))


def test_another_meaning_is_refused() -> None:
    plan = made(LAST)
    node = plan.nodes["keep"]
    other = replace(plan, nodes={**plan.nodes, "keep": replace(node, operator=Keep(("j",), (LAST,)))})
    with pytest.raises(InvalidError, match="step 'keep' has another definition") as caught:
        check_compatible(plan, other, {"in"})
    assert caught.value.detail == "its meaning was ('k',), and is ('j',) now"
    apart = replace(plan, nodes={**plan.nodes, "keep": replace(node, inputs=("other",))})
    with pytest.raises(InvalidError, match="step 'keep' has another definition") as caught:
        check_compatible(plan, apart, {"in"})
    assert caught.value.detail == "it read in, and reads other now"


def test_what_the_step_itself_keeps_cannot_be_migrated_and_the_hint_does_not_say_so() -> None:
    changed = Kept("out", pa.schema([("n", pa.string())]))
    with pytest.raises(InvalidError, match="state 'out' of step 'keep' cannot continue") as caught:
        going_on(made(Kept("out")), made(changed))
    assert "migrate" not in (caught.value.hint or "migrate")


def test_tables_written_anew_may_be_anything() -> None:
    changed = made(Kept("last", pa.schema([("n", pa.string())])))
    plan = check_compatible(made(LAST), changed, {"in"}, rewritten={"keep/last"})
    assert spec(plan, "keep/last").schema.field("n").type == pa.string()


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"order": (Order("n"),)}, "its order changed"),
        ({"rule": "weights"}, "its merge rule changed"),
        ({"time": "n", "bucket_width": 5}, "its time column changed"),
    ],
)
def test_what_a_row_is_must_stay(fields: dict[str, Any], what: str) -> None:
    plan = made(LAST)
    node = plan.nodes["keep"]
    table = replace(node.binding.tables[0], **fields)
    other = replace(node, binding=replace(node.binding, tables=(table,)))
    with pytest.raises(InvalidError, match=what):
        check_compatible(plan, replace(plan, nodes={**plan.nodes, "keep": other}), {"in"})


def with_binding(plan: Plan, table: TableSpec, *wakes: Wake) -> Plan:
    node = plan.nodes["keep"]
    other = replace(node, binding=replace(node.binding, tables=(table,), wakes=wakes))
    return replace(plan, nodes={**plan.nodes, "keep": other})


def test_buckets_keep_their_width() -> None:
    """The numbers of the buckets that are there mean times by the old one."""
    plan = made(LAST)
    table = replace(plan.nodes["keep"].binding.tables[0], time="n", bucket_width=5)
    old = with_binding(plan, table, Wake("keep/last", 5, 1))
    new = with_binding(plan, replace(table, bucket_width=7), Wake("keep/last", 7, 1))
    held = check_compatible(old, new, {"in"})
    assert spec(held, "keep/last").bucket_width == 5
    assert held.nodes["keep"].binding.wakes == (Wake("keep/last", 5, 1),)


def test_a_multiset_gains_columns_but_loses_none() -> None:
    plan = made(wider(a=None))
    table = replace(plan.nodes["keep"].binding.tables[0], rule="weights")
    old = with_binding(plan, table)
    more = replace(table, schema=table.schema.append(pa.field("z", pa.int64())))
    check_compatible(old, with_binding(plan, more), {"in"})
    for names in (["k", "n"], ["k", "a", "n"]):
        less = replace(table, schema=pa.schema([table.schema.field(n) for n in names]))
        with pytest.raises(InvalidError, match="it is a multiset"):
            check_compatible(old, with_binding(plan, less), {"in"})
