"""OVER: the rows of a partition computed again when one of them changes.

Functions that depend on the place of a row among its equals see ties in the
order of all columns, so that the same rows always give the same answer (law 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.operators.per_key import PerKey
from millpond.sql.expressions import Column, direction, references, render
from millpond.sql.lowering import Lowering
from millpond.sql.refusal import refuse
from millpond.sql.relation import Relation, fresh_names
from millpond.sql.types import Json, as_stored, quoted, type_text

_PLAIN = {
    "WINDOW_ROW_NUMBER": "row_number", "WINDOW_RANK": "rank", "WINDOW_RANK_DENSE": "dense_rank",
    "WINDOW_PERCENT_RANK": "percent_rank", "WINDOW_CUME_DIST": "cume_dist", "WINDOW_NTILE": "ntile",
    "WINDOW_FIRST_VALUE": "first_value", "WINDOW_LAST_VALUE": "last_value", "WINDOW_NTH_VALUE": "nth_value",
    "WINDOW_LEAD": "lead", "WINDOW_LAG": "lag", "WINDOW_FILL": "fill",
}  # fmt: skip
_BY_PLACE = ("row_number", "ntile", "first_value", "last_value", "nth_value", "lead", "lag", "fill")
_EXCLUDE = {
    "NO_OTHER": "",
    "CURRENT_ROW": " EXCLUDE CURRENT ROW",
    "GROUP": " EXCLUDE GROUP",
    "TIES": " EXCLUDE TIES",
}


def lower(low: Lowering, node: Json) -> Relation:
    from millpond.sql.rules.filter import width_of  # which looks for windows below its conditions

    calls = node["expressions"]
    width = width_of(low, node["children"][0])
    read, below = read_below(low, node, width)
    source = low.lower(node["children"][0])
    if not read:  # the same rows, and in place of columns that nobody reads stand others
        return Relation(source.step, (*source.columns, *(source.columns[0] for _ in calls)))
    found: list[Column | None] = [None] * len(calls)
    held = low.exact(source) if below is None else low.narrowed(source, below)
    by_partition: dict[str, list[int]] = {}
    for n in read:
        call = calls[n]
        key = repr([render(p, source.columns) for p in call.get("partitions") or []])
        by_partition.setdefault(key, []).append(n)
    for numbers in by_partition.values():
        held = _one_partition(low, held, width, calls, numbers, found)
    return Relation(held.step, (*held.columns[:width], *(c or held.columns[0] for c in found)))


def read_below(low: Lowering, node: Json, width: int) -> tuple[list[int], frozenset[int] | None]:
    """The calls that are read, and what they and whoever is above need of the node below, if that is known.

    What nobody reads is not computed, so that it cannot fail, as in a batch.
    """
    wanted = low.needed(node)
    if wanted is None:
        return list(range(len(node["expressions"]))), None
    read = [n for n in range(len(node["expressions"])) if width + n in wanted]
    return read, needed_below(low, node, width, read)


def needed_below(low: Lowering, node: Json, width: int, calls: Sequence[int]) -> frozenset[int] | None:
    """What these calls and whoever is above need of the node below, if that is known."""
    wanted = low.needed(node)
    if wanted is None:
        return None
    below = frozenset(n for n in wanted if n < width)
    below = below.union(*(_read_by(node["expressions"][n]) for n in calls))
    low.need(node["children"][0], below)
    return below


def _read_by(call: Json) -> Iterator[int]:
    """The columns that a call, its window and its frame read."""
    parts = [*(call.get("children") or ()), *(call.get("partitions") or ())]
    parts += [o["expression"] for o in (*(call.get("orders") or ()), *(call.get("arg_orders") or ()))]
    single = ("filters", "offset_expr", "default_expr", "start_expr", "end_expr")
    parts += [call[name] for name in single if call.get(name)]
    for part in parts:
        yield from references(part)


def _one_partition(
    low: Lowering,
    held: Relation,
    width: int,
    calls: Sequence[Json],
    numbers: list[int],
    found: list[Column | None],
) -> Relation:
    own = Relation(held.step, held.columns[:width])
    parts = calls[numbers[0]].get("partitions") or []
    extended, keys = low.extended(Relation(held.step, held.columns), parts, "part")
    names = list(low.builder.shape(extended.step).schema.names)
    outs = fresh_names([calls[n].get("alias") or "over" for n in numbers], names)
    texts = []
    for out, n in zip(outs, numbers, strict=True):
        text = as_stored(_call(calls[n], own.columns, keys, names), type_text(calls[n]["return_type"]))
        texts.append(f"{text} AS {quoted(out)}")
        found[n] = Column(out, type_text(calls[n]["return_type"]))
    listed = ", ".join([*(quoted(n) for n in names), *texts])
    parted = tuple(dict.fromkeys(keys))
    step = low.add(PerKey(parted, sql=f"select {listed} from input", passes=parted), (extended.step,), "over")
    extra = [
        Column(o, f.type) for o, f in zip(outs, (found[n] for n in numbers), strict=True) if f is not None
    ]
    return Relation(step, (*held.columns, *extra))


def _call(call: Json, columns: Sequence[Column], keys: Sequence[str], names: Sequence[str]) -> str:
    kind = call["type"]
    if kind == "WINDOW_AGGREGATE":
        name = call["qname"]["path"][-1]
    elif kind in _PLAIN:
        name = _PLAIN[kind]
    else:
        refuse(call, "is not supported in a materialized view")
    arguments = [render(c, columns) for c in call.get("children") or []]
    for extra in ("offset_expr", "default_expr"):
        if call.get(extra):
            arguments.append(render(call[extra], columns))
    if name == "count_star":
        name, arguments = "count", ["*"]
    inner = ", ".join(arguments)
    if call.get("distinct"):
        inner = "DISTINCT " + inner
    orders = call.get("arg_orders") or []
    if orders:
        inner += " ORDER BY " + _orders(orders, columns)
    if call.get("ignore_nulls"):
        inner += " IGNORE NULLS"
    shown = f"{quoted(name)}({inner})" if kind == "WINDOW_AGGREGATE" else f"{name}({inner})"
    if call.get("filters"):
        shown += f" FILTER (WHERE {render(call['filters'], columns)})"
    by = call.get("orders") or []
    frame, rows = _frame(call, by, columns)
    parts = []
    if keys:
        parts.append("PARTITION BY " + ", ".join(quoted(k) for k in keys))
    listed = [_orders(by, columns)] if by else []
    if (name in _BY_PLACE or rows) and name != "fill":
        used = {columns[r].name for o in by for r in references(o["expression"])}
        listed += [quoted(n) for n in names if n not in used]
    if listed:
        parts.append("ORDER BY " + ", ".join(listed))
    if frame:
        parts.append(frame)
    return f"{shown} OVER ({' '.join(parts)})"


def _orders(orders: Sequence[Json], columns: Sequence[Column]) -> str:
    return ", ".join(f"{render(o['expression'], columns)} {direction(o)}" for o in orders)


def _frame(call: Json, by: Sequence[Json], columns: Sequence[Column]) -> tuple[str, bool]:
    """The frame as text, and whether it counts rows."""
    start, end = str(call["start"]), str(call["end"])
    unit = next((u for u in ("ROWS", "RANGE", "GROUPS") if start.endswith(u) or end.endswith(u)), "")
    if (
        start == "UNBOUNDED_PRECEDING"
        and end in ("CURRENT_ROW_RANGE", "UNBOUNDED_FOLLOWING")
        and (call["exclude_clause"] == "NO_OTHER")
    ):
        if end == "CURRENT_ROW_RANGE":
            return "", False
        unit = "RANGE"
    unit = unit or "RANGE"
    low_edge = _edge(start, call.get("start_expr"), unit, columns)
    high_edge = _edge(end, call.get("end_expr"), unit, columns)
    counts = unit == "ROWS" and not (start == "UNBOUNDED_PRECEDING" and end == "UNBOUNDED_FOLLOWING")
    return f"{unit} BETWEEN {low_edge} AND {high_edge}{_EXCLUDE[call['exclude_clause']]}", counts


def _edge(word: str, node: Json | None, unit: str, columns: Sequence[Column]) -> str:
    if word.startswith("UNBOUNDED"):
        return word.replace("_", " ")
    if word.startswith("CURRENT_ROW"):
        return "CURRENT ROW"
    assert node is not None
    side = "PRECEDING" if "PRECEDING" in word else "FOLLOWING"
    if unit == "RANGE":  # the binder wrote order - offset, or order + offset
        while node["expression_class"] == "BOUND_FUNCTION" and node["qname"]["path"][-1] == "__cast":
            node = node["children"][0]
        node = node["children"][1]
    return f"{render(node, columns)} {side}"
