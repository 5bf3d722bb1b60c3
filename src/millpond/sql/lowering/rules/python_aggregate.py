"""Python aggregates: use accumulators where rows can be retracted, else compute from a list.

A call is bound as a function of the list of its rows, `f(list(row))`.  If nothing else
reads the list, the call becomes an aggregate of the plan (`lift`).  The rule then decides
by whether the input is append-only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.kernels import duck
from millpond.kernels.python_function import PythonFunction
from millpond.operators.accumulate import Accumulate, Call
from millpond.sql.binding.types import Json, quoted, type_text
from millpond.sql.lowering.expressions import StepColumn, children, render, type_of
from millpond.sql.lowering.lowering import Lowering, bare
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rules import synopsis_aggregate

Grouped = Callable[[Lowering, Relation, Sequence[Json], Sequence[Json]], Relation]


def lift(node: Json) -> Json:
    """Turn calls over lists into Python aggregates; the plan is changed in place."""
    for child in node.get("children") or ():
        if isinstance(child, dict):
            lift(child)
    if node.get("type") == "LOGICAL_PROJECTION":
        above, below = [node], node["children"][0]
        while below["type"] == "LOGICAL_FILTER" and not below.get("projection_map"):
            above.append(below)
            below = below["children"][0]
        if below["type"] == "LOGICAL_AGGREGATE_AND_GROUP_BY" and not below.get("grouping_functions"):
            for number in range(len(below["expressions"])):
                _lift_one(above, below, number)
    return node


def _lift_one(above: Sequence[Json], below: Json, number: int) -> None:
    call = below["expressions"][number]
    if call["qname"]["path"][-1] not in ("list", "array_agg") or call["children"][0].get("qname") is None:
        return
    row = call["children"][0]
    if row["qname"]["path"][-1] != "struct_pack":
        return
    place = len(below["groups"]) + number
    readers: list[Json] = []
    for node in above:
        for expression in node["expressions"]:
            if not _readers(expression, place, readers):
                return  # something reads the list itself
    by_name: dict[str, list[Json]] = {}
    for reader in readers:
        by_name.setdefault(reader["qname"]["path"][-1], []).append(reader)
    for count, (name, mine) in enumerate(by_name.items()):
        made = {
            **call,
            "qname": {"path": [name]},
            "children": row["children"],
            "row": row,
            "list_type": call["return_type"],
            "return_type": mine[0]["return_type"],
        }
        at = number
        if count:
            at = len(below["expressions"])
            below["expressions"].append(made)
        else:
            below["expressions"][number] = made
        for reader in mine:
            reference = {
                "expression_class": "BOUND_REF",
                "type": "BOUND_REF",
                "alias": reader.get("alias") or "",
                "return_type": reader["return_type"],
                "index": len(below["groups"]) + at,
            }
            reader.clear()
            reader.update(reference)


def _readers(node: Json, place: int, found: list[Json]) -> bool:
    """Collect the calls of Python aggregates over a column; return whether nothing else reads it."""
    if node["expression_class"] == "BOUND_REF":
        return int(node["index"]) != place
    if node["expression_class"] == "BOUND_FUNCTION" and is_lifted(node):
        (inner,) = node["children"]
        if inner["expression_class"] == "BOUND_REF" and int(inner["index"]) == place:
            found.append(node)
            return True
    return all(_readers(child, place, found) for child in children(node))


def _function(node: Json) -> PythonFunction | None:
    """Return the Python aggregate that a node calls, or None."""
    name = ((node.get("qname") or {}).get("path") or [""])[-1]
    found = duck.provided().get(name) if "#" in name else None
    return found if isinstance(found, PythonFunction) and found.kind == "aggregate" else None


def is_lifted(call: Json) -> bool:
    """Is this a function of the list of a group's rows: a Python aggregate or a sketch?"""
    return _function(call) is not None or synopsis_aggregate.list_function(call) is not None


def is_python(call: Json) -> bool:
    return _function(call) is not None


def lower(
    low: Lowering, source: Relation, groups: Sequence[Json], calls: Sequence[Json], grouped: Grouped
) -> Relation:
    """Lower groups with Python aggregates among the calls; `grouped` lowers all others."""
    append_only = low.shape(source).append_only
    fast = [n for n, call in enumerate(calls) if not low.emit_on_close and _is_fast(call, append_only)]
    rest = [n for n in range(len(calls)) if n not in fast]
    parts: list[tuple[Relation, list[int]]] = []
    if rest or not fast:
        parts.append((_by_lists(low, source, groups, [calls[n] for n in rest], grouped), rest))
    if fast:
        parts.append((_accumulated(low, source, groups, [calls[n] for n in fast]), fast))
    width = len(groups)
    if len(parts) == 1:
        return parts[0][0]
    from millpond.sql.lowering.rules import join

    pairs = [(_ref(n, g), _ref(n, g), "COMPARE_NOT_DISTINCT_FROM") for n, g in enumerate(groups)]
    joined = join.inner(low, parts[0][0], parts[1][0], pairs, ())
    order = list(range(width))
    for number in range(len(calls)):
        side = 0 if number in rest else 1
        before = width + len(rest) + width if side else width
        order.append(before + parts[side][1].index(number))
    return joined.pick(order)


def _ref(place: int, group: Json) -> Json:
    kind = group["return_type"] if "return_type" in group else group["value"]["type"]
    return {
        "expression_class": "BOUND_REF", "type": "BOUND_REF", "alias": "", "index": place,
        "return_type": kind,
    }  # fmt: skip


def _is_fast(call: Json, append_only: bool) -> bool:
    function = _function(call)
    if function is None or call.get("aggregate_type") == "DISTINCT":
        return False
    if (call.get("order_bys") or {}).get("orders"):
        return False
    return append_only or function.retracts


def _by_lists(
    low: Lowering, source: Relation, groups: Sequence[Json], calls: Sequence[Json], grouped: Grouped
) -> Relation:
    """Compute the functions over lists of their rows."""
    plain = [
        call
        if not is_lifted(call)
        else {
            **call,
            "qname": {"path": ["list"]},
            "children": [call["row"]],
            "return_type": call["list_type"],
        }
        for call in calls
    ]
    found = grouped(low, source, groups, plain)
    if not any(map(is_lifted, calls)):
        return found
    width = len(groups)
    wanted = [(c.name, quoted(c.name), c.type) for c in found.columns[:width]]
    for column, call in zip(found.columns[width:], calls, strict=True):
        if is_lifted(call):
            text = f"{quoted(call['qname']['path'][-1])}({column.sql})"
            wanted.append((column.name, text, type_text(call["return_type"])))
        else:
            wanted.append((column.name, quoted(column.name), column.type))
    return low.compute(found, wanted, "aggregates")


def _accumulated(low: Lowering, source: Relation, groups: Sequence[Json], calls: Sequence[Json]) -> Relation:
    from millpond.sql.lowering.rules.aggregate import with_nothing

    keys = fresh_names(g.get("alias") or f"group_{n}" for n, g in enumerate(groups))
    wanted = [(n, bare(g, source), type_of(g)) for n, g in zip(keys, groups, strict=True)]
    outs = fresh_names([c.get("alias") or c["qname"]["path"][-1].partition("#")[0] for c in calls], keys)
    taken = [*keys, *outs]

    def column(text: str, kind: str, base: str) -> str:
        for name, known, _ in wanted[len(keys) :]:
            if known == text:
                return name
        (name,) = fresh_names([base], taken)
        taken.append(name)
        wanted.append((name, text, kind))
        return name

    made = []
    for out, call in zip(outs, calls, strict=True):
        function = _function(call)
        assert function is not None
        arguments = tuple(column(render(c, source.columns), type_of(c), "argument") for c in call["children"])
        conditions = [render(call["filter"], source.columns)] if call.get("filter") else []
        given = None
        if conditions or not groups:  # excludes the row that represents empty input
            given = column(" AND ".join(conditions) or "true", "BOOLEAN", "given")
        made.append(Call(out, function, arguments, given))
    rows = low.compute(source, wanted, "arguments")
    if not groups:
        rows = with_nothing(low, rows)
    step = low.add(Accumulate(tuple(keys), tuple(made)), (rows.step,), "accumulate")
    columns = [StepColumn(n, type_of(g)) for n, g in zip(keys, groups, strict=True)]
    columns += [StepColumn(n, type_text(c["return_type"])) for n, c in zip(outs, calls, strict=True)]
    return Relation(step, tuple(columns))
