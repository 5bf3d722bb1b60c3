"""OVER: recomputes the rows of a partition when one of them changes; see `rules/window_query.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millpond.operators.per_key import PerKey
from millpond.sql.binding.types import Json, as_stored, type_text
from millpond.sql.lowering.expressions import StepColumn, references, render
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rules import final_rows
from millpond.sql.lowering.rules.node_width import width_of
from millpond.sql.lowering.rules.window_query import Over


def lower(low: Lowering, node: Json) -> Relation:
    calls = node["expressions"]
    width = width_of(low, node["children"][0])
    read, below = read_below(low, node, width)
    source = low.lower(node["children"][0])
    for call in calls if low.final_rows else ():
        final_rows.check_over(low, source, call)
    if not read:  # the same rows; other columns take the positions of unread ones
        return Relation(source.step, (*source.columns, *(source.columns[0] for _ in calls)))
    found: list[StepColumn | None] = [None] * len(calls)
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
    """Return the calls that are read, and the columns needed from the node below, if known.

    Calls that are not read are not computed, so they cannot fail, as in a batch query.
    """
    wanted = low.needed(node)
    if wanted is None:
        return list(range(len(node["expressions"]))), None
    read = [n for n in range(len(node["expressions"])) if width + n in wanted]
    return read, needed_below(low, node, width, read)


def needed_below(low: Lowering, node: Json, width: int, calls: Sequence[int]) -> frozenset[int] | None:
    """Return the columns of the node below that these calls and the nodes above need, if known."""
    wanted = low.needed(node)
    if wanted is None:
        return None
    below = frozenset(n for n in wanted if n < width)
    below = below.union(*(_read_by(node["expressions"][n]) for n in calls))
    low.need(node["children"][0], below)
    return below


def _read_by(call: Json) -> Iterator[int]:
    """Yield the columns that a call, its window and its frame read."""
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
    found: list[StepColumn | None],
) -> Relation:
    parts = calls[numbers[0]].get("partitions") or []
    extended, keys = low.extended(Relation(held.step, held.columns), parts, "part")
    names = list(low.builder.shape(extended.step).schema.names)
    outs = fresh_names([calls[n].get("alias") or "over" for n in numbers], names)
    (place,) = fresh_names(["place"], [*names, *outs])
    over = Over(held.columns[:width], keys, names, place, outs)
    texts = []
    for out, n in zip(outs, numbers, strict=True):
        kind = type_text(calls[n]["return_type"])
        texts.append((out, as_stored(over.call(calls[n]), kind)))
        found[n] = StepColumn(out, kind)
    parted = tuple(dict.fromkeys(keys))
    operator = PerKey(parted, sql=over.sql(texts), passes=parted, place=place, alone=over.alone)
    step = low.add(operator, (extended.step,), "over")
    extra = [
        StepColumn(o, f.type) for o, f in zip(outs, (found[n] for n in numbers), strict=True) if f is not None
    ]
    return Relation(step, (*held.columns, *extra))
