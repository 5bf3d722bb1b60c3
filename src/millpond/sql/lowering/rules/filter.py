"""Conditions, each evaluated as early as possible.

Cross products and inner joins below a filter are split and reassembled: a condition on
one relation moves below the join, equalities become join keys, and relations are joined
in an order in which each one has a key in common with an earlier one, where the query
allows that.  Only relations without any equality become cross products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from millpond.operators.filter import Filter
from millpond.sql.binding.types import Json
from millpond.sql.lowering.expressions import (
    StepColumn,
    conjuncts,
    moved,
    reads_clock,
    references,
    render,
    shifted,
)
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation
from millpond.sql.lowering.rules import as_of_now, bounded_rank, cte, join, temporal
from millpond.sql.lowering.rules.node_width import width_of

_EQUAL = ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM")


def lower(low: Lowering, node: Json) -> Relation:
    found = filtered(low, node["children"][0], list(_factored(node["expressions"])))
    kept = node.get("projection_map") or []
    return found.pick(kept) if kept else found


def lower_product(low: Lowering, node: Json) -> Relation:
    return _joined(low, node, ())


def filtered(low: Lowering, node: Json, conditions: Sequence[Json]) -> Relation:
    """Return the rows of a node for which all conditions hold."""
    if not conditions:
        return low.lower(node)
    kind = node["type"]
    if is_product(node):
        return _joined(low, node, conditions)
    if kind == "LOGICAL_FILTER" and not node.get("projection_map"):
        return filtered(low, node["children"][0], [*_factored(node["expressions"]), *conditions])
    if kind == "LOGICAL_MATERIALIZED_CTE":
        return cte.around(low, node, lambda rest: filtered(low, rest, conditions))
    if kind == "LOGICAL_WINDOW":
        found = bounded_rank.lower(low, node, conditions, width_of(low, node["children"][0]))
        if found is not None:
            return kept(low, *found)
        low.need_also(node, conditions)
        return kept(low, low.lower(node), conditions)
    if kind == "LOGICAL_PROJECTION":
        return _below_projection(low, node, conditions)
    if kind == "LOGICAL_COMPARISON_JOIN" and node["join_type"] == "MARK":
        return _below_mark(low, node, conditions)
    if kind in ("LOGICAL_COMPARISON_JOIN", "LOGICAL_ANY_JOIN"):
        return _below_join(low, node, conditions)
    low.need_also(node, conditions)
    return kept(low, low.lower(node), conditions)


def kept(low: Lowering, source: Relation, conditions: Sequence[Json]) -> Relation:
    timed = [c for c in conditions if reads_clock(c)]
    plain = [c for c in conditions if not reads_clock(c)]
    if plain:
        text = " AND ".join(render(c, source.columns) for c in plain)
        source = Relation(low.add(Filter(text), (source.step,), "where"), source.columns)
    return temporal.lower(low, source, timed) if timed else source


def _factored(nodes: Sequence[Json]) -> list[Json]:
    """Return the conditions that must all hold, including those that all branches of an OR share."""
    found: list[Json] = []
    for node in conjuncts(nodes):
        if node["expression_class"] == "BOUND_CONJUNCTION":
            branches = [list(conjuncts([c])) for c in node["children"]]
            texts = [{_text(c) for c in branch} for branch in branches]
            found += [c for c in branches[0] if all(_text(c) in t for t in texts[1:])]
        found.append(node)
    return found


def _text(node: Json) -> str:
    """Return a text that is equal for equal expressions, wherever they are in the query."""
    if isinstance(node, dict):
        return repr([(k, _text(v)) for k, v in node.items() if not k.startswith("query_location")])
    return repr([_text(n) for n in node]) if isinstance(node, list) else repr(node)


# -- through one node -------------------------------------------------------------------


def _below_projection(low: Lowering, node: Json, conditions: Sequence[Json]) -> Relation:
    """Move conditions on columns that the projection only passes on below it."""
    from millpond.sql.lowering.rules import project, time_window

    as_of_now.check(low, node)
    places = {
        n: int(e["index"]) for n, e in enumerate(node["expressions"]) if e["expression_class"] == "BOUND_REF"
    }
    timed = time_window.is_marked(
        node["expressions"]
    )  # rows without a time are errors, whatever the conditions
    below = [] if timed else [c for c in conditions if places.keys() >= set(references(c))]
    if (wanted := low.needed(node)) is not None:
        above = (c for c in conditions if not any(c is b for b in below))
        low.need(node, wanted | {r for c in above for r in references(c)})
    if not below:
        return kept(low, low.lower(node), conditions)
    rest = [c for c in conditions if not any(c is b for b in below)]
    expressions = project.read(low, node)
    source = filtered(low, node["children"][0], [moved(c, places) for c in below])
    return kept(low, project.over(low, source, expressions), rest)


def _below_mark(low: Lowering, node: Json, conditions: Sequence[Json]) -> Relation:
    low.need_also(node, conditions)
    join.need_sides(low, node)
    shown = node.get("left_projection_map") or range(width_of(low, node["children"][0]))
    places = dict(enumerate(shown))
    below = [moved(c, places) for c in conditions if len(places) not in set(references(c))]
    rest = [c for c in conditions if len(places) in set(references(c))]
    return join.lower_mark(low, node, rest, filtered(low, node["children"][0], below))


def _below_join(low: Lowering, node: Json, conditions: Sequence[Json]) -> Relation:
    """Move conditions below a join.

    They can move to the preserved side of an outer join, and to the left of a semi or anti join.
    """
    picked = node.get("left_projection_map") or (
        node.get("right_projection_map") and node["join_type"] != "SINGLE"
    )
    low.need_also(node, conditions)
    if picked:
        return kept(low, low.lower(node), conditions)
    as_of_now.allow(low, node)
    by_row = as_of_now.is_marked(node["children"][1])
    width = width_of(low, node["children"][0])
    left: list[Json] = []
    right: list[Json] = []
    rest: list[Json] = []
    for condition in conditions:
        used = set(references(condition))
        if by_row and reads_clock(condition):  # the left must not lose rows before the join
            rest.append(condition)
        elif used and max(used) < width and node["join_type"] in ("LEFT", "SINGLE", "SEMI", "ANTI"):
            left.append(condition)
        elif used and min(used) >= width and node["join_type"] == "RIGHT":
            right.append(shifted(condition, width))
        else:
            rest.append(condition)
    join.need_sides(low, node)
    sides = (filtered(low, node["children"][0], left), filtered(low, node["children"][1], right))
    return kept(low, join.lower_sides(low, node, *sides), rest)


# -- products -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Relations joined so far; `places` maps columns of the product to positions in the relation."""

    relation: Relation
    places: dict[int, int]

    def holds(self, columns: set[int]) -> bool:
        return columns <= self.places.keys()


_Inner = Callable[[Lowering, Relation, Relation, Sequence[join.Pair], Sequence[Json]], Relation]


def is_product(node: Json) -> bool:
    if node["type"] == "LOGICAL_CROSS_PRODUCT":
        return True
    return (
        node["type"] in ("LOGICAL_COMPARISON_JOIN", "LOGICAL_ANY_JOIN")
        and node["join_type"] == "INNER"
        and not node.get("left_projection_map")
        and not node.get("right_projection_map")
    )


def _leaves(low: Lowering, node: Json, at: int, asked: list[Json]) -> list[tuple[Json, int, int]]:
    """Return (node, first column, width) of each leaf of a product; add its conditions to `asked`."""
    left = _parts(low, node["children"][0], at, asked)
    middle = left[-1][1] + left[-1][2]
    right = _parts(low, node["children"][1], middle, asked)
    for c in node.get("conditions") or ():
        if c["right"] is None:  # a condition over both sides
            asked.append(shifted(c["left"], -at))
            continue
        asked.append(_comparison(shifted(c["left"], -at), shifted(c["right"], -middle), c["comparison"]))
    if node.get("condition"):
        asked += [shifted(c, -at) for c in _factored([node["condition"]])]
    return [*left, *right]


def _parts(low: Lowering, node: Json, at: int, asked: list[Json]) -> list[tuple[Json, int, int]]:
    """Return the leaves of one side.

    A join as of now is one leaf, because its rows must be joined when the rows of its left arrive.
    """
    filters = node["type"] == "LOGICAL_FILTER" and not node.get("projection_map")
    inner = node["children"][0] if filters else node
    if not is_product(inner) or any(as_of_now.is_marked(c) for c in inner["children"]):
        return [(node, at, width_of(low, node))]
    if inner is not node:
        asked += [shifted(c, -at) for c in _factored(node["expressions"])]
    return _leaves(low, inner, at, asked)


def _comparison(left: Json, right: Json, how: str) -> Json:
    return {
        "expression_class": "BOUND_FUNCTION", "type": how, "children": [left, right],
        "qname": {"path": [how]}, "return_type": {"id": "BOOLEAN", "type_info": None},
    }  # fmt: skip


def _joined(low: Lowering, node: Json, conditions: Sequence[Json]) -> Relation:
    asked: list[Json] = []
    leaves = _leaves(low, node, 0, asked)
    asked += conditions
    total = leaves[-1][1] + leaves[-1][2]
    wanted = low.needed(node)
    if wanted is None:
        wanted = frozenset(range(total))
    groups: list[_Group] = []
    by_row: list[_Group] = []  # tables as of now: joined last
    marks: list[as_of_now.TextRange | None] = []  # the position of each one's clause in the text
    used: set[int] = set()
    read = wanted | {r for c in asked for r in references(c)}
    any_marked = any(as_of_now.is_marked(leaf) for leaf, _, _ in leaves)
    for leaf, first, width in leaves:
        own = {first + n for n in range(width)}
        marked = as_of_now.is_marked(leaf) and len(leaves) > 1
        below = [n for n, c in enumerate(asked) if (r := set(references(c))) and r <= own]
        if any_marked and not marked:  # the other leaves must not lose rows before the join
            below = [n for n in below if not reads_clock(asked[n])]
        used |= set(below)
        if marked:
            as_of_now.opened(low, leaf)
            marks.append(as_of_now.position(low, leaf))
        else:
            # A row that meets a table as of now is recognized by all its columns when it is retracted.
            low.need(leaf, set(range(width)) if any_marked else {n - first for n in read & own})
        relation = filtered(low, leaf, [shifted(asked[n], first) for n in below])
        (by_row if marked else groups).append(_Group(relation, {first + n: n for n in range(width)}))
    rest = [c for n, c in enumerate(asked) if n not in used]
    groups, by_row = ([_narrow(group, wanted, rest) for group in some] for some in (groups, by_row))
    while len(groups) > 1:
        a, b = _next(groups, rest)
        groups[a], rest = _paired(low, groups[a], groups[b], wanted, rest, join.inner)
        del groups[b]
    for table, at in zip(by_row, marks, strict=True):
        if not groups:
            as_of_now.refuse(at)
        as_it_is = partial(as_of_now.joined, kind="inner")
        groups[0], rest = _paired(low, groups[0], table, wanted, rest, as_it_is)
    (whole,) = groups
    found = kept(low, whole.relation, [moved(c, whole.places) for c in rest])
    nothing = found.columns[0] if found.columns else StepColumn(low.shape(found).schema.names[0], "BOOLEAN")
    return Relation(
        found.step,
        tuple(found.columns[whole.places[n]] if n in whole.places else nothing for n in range(total)),
    )


def _paired(
    low: Lowering, one: _Group, two: _Group, wanted: frozenset[int], rest: list[Json], how: _Inner
) -> tuple[_Group, list[Json]]:
    """Join two groups by the conditions over both; also return the remaining conditions."""
    width = len(one.relation.columns)
    places = {**one.places, **{c: width + p for c, p in two.places.items()}}
    ready = [c for c in rest if places.keys() >= (r := set(references(c))) and r and not reads_clock(c)]
    pairs, others = [], []
    for condition in ready:
        pair = _pair(condition, one, two)
        if pair is None:
            others.append(moved(condition, places))
        else:
            pairs.append(pair)
    rest = [c for c in rest if not any(c is r for r in ready)]
    made = _Group(how(low, one.relation, two.relation, pairs, others), places)
    return _narrow(made, wanted, rest), rest


def _narrow(group: _Group, wanted: frozenset[int], rest: Sequence[Json]) -> _Group:
    """Keep only the columns that are read above, or by a condition not applied yet."""
    read = wanted | {r for condition in rest for r in references(condition)}
    places = sorted(p for c, p in group.places.items() if c in read)
    moved_to = {p: n for n, p in enumerate(places)}
    kept_places = {c: moved_to[p] for c, p in group.places.items() if c in read}
    return _Group(group.relation.pick(places), kept_places)


def _next(groups: Sequence[_Group], conditions: Sequence[Json]) -> tuple[int, int]:
    """Return the first two groups that an equality connects, else the first two."""
    for a, one in enumerate(groups):
        for b in range(a + 1, len(groups)):
            if any(_pair(c, one, groups[b]) is not None for c in conditions):
                return a, b
    return 0, 1


def _pair(condition: Json, one: _Group, two: _Group) -> join.Pair | None:
    """Return (expression of one, expression of two, comparison) if the condition equates the two groups."""
    if condition["type"] not in _EQUAL:
        return None
    for a, b in (condition["children"], reversed(condition["children"])):
        left, right = set(references(a)), set(references(b))
        if left and right and one.holds(left) and two.holds(right):
            return moved(a, one.places), moved(b, two.places), condition["type"]
    return None
