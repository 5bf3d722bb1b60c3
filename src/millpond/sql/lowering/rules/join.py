"""Joins of all kinds; IN, EXISTS and scalar subqueries are bound as joins, too."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.aggregate import Agg, Aggregate, feeds_for
from millpond.operators.filter import Filter
from millpond.operators.join import Join, Kind
from millpond.operators.per_key import PerKey
from millpond.operators.union import Union
from millpond.sql.binding.types import Json, quoted, text_literal
from millpond.sql.lowering.expressions import StepColumn, comparison, references, render, shifted, type_of
from millpond.sql.lowering.join_time_bounds import comparison as compared
from millpond.sql.lowering.join_time_bounds import spans
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.rules import rows_at_extreme
from millpond.sql.lowering.rules.node_width import width_of
from millpond.sql.refusal import refuse

Pair = tuple[Json, Json, str]  # left expression, right expression, comparison

_KINDS: dict[str, Kind] = {
    "INNER": "inner",
    "LEFT": "left",
    "RIGHT": "right",
    "OUTER": "full",
    "FULL": "full",
    "SEMI": "semi",
    "ANTI": "anti",
}
_LEFT_KINDS = ("inner", "left", "semi", "anti")  # kinds that never show a row of the right without a partner
_EQUAL = ("COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM")
MORE_THAN_ONE = "more than one row returned by a subquery used as an expression"


def lower(low: Lowering, node: Json) -> Relation:
    from millpond.sql.lowering.rules import as_of_now, filter

    if filter.is_product(node):
        return filter.lower_product(low, node)
    need_sides(low, node)
    if node["join_type"] == "MARK":
        return lower_mark(low, node, (), low.lower(node["children"][0]))
    as_of_now.allow(low, node)
    left, right = (low.lower(c) for c in node["children"])
    return lower_sides(low, node, left, right)


def need_sides(low: Lowering, node: Json) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    """Record the columns of each side that the nodes above and the conditions read."""
    from millpond.sql.lowering.rules import as_of_now

    wanted = low.needed(node)
    if wanted is None:
        return None, None
    width, other = (width_of(low, c) for c in node["children"])
    left = node.get("left_projection_map") or list(range(width))
    right = node.get("right_projection_map") or list(range(other))
    if node["join_type"] in ("SEMI", "ANTI", "MARK"):
        right = []
    shown = [*left, *(width + n for n in right)]
    read = {shown[n] for n in wanted if n < len(shown)}
    for c in node.get("conditions") or ():
        read |= set(references(c["left"]))
        read |= {width + r for r in references(c["right"])} if c["right"] is not None else set()
    read |= set(references(node["condition"])) if node.get("condition") else set()
    sides = frozenset(n for n in read if n < width), frozenset(n - width for n in read if n >= width)
    # A row that meets a table as of now is recognized by all its columns when it is retracted.
    by_row = as_of_now.is_marked(node["children"][1])
    low.need(node["children"][0], frozenset(range(width)) if by_row else sides[0])
    low.need(node["children"][1], sides[1])
    return sides


def lower_sides(low: Lowering, node: Json, left: Relation, right: Relation) -> Relation:
    """Join two relations by the conditions of a node."""
    asked = node.get("conditions") or ()
    pairs = [(c["left"], c["right"], c["comparison"]) for c in asked if c["right"] is not None]
    rest = [c["left"] for c in asked if c["right"] is None]  # a condition over both sides
    rest += [node["condition"]] if node.get("condition") else []
    from millpond.sql.lowering.rules import as_of_now

    by_row = as_of_now.is_marked(node["children"][1]) and node["join_type"] == "LEFT"
    read = need_sides(low, node)
    left = left.reading(read[0]) if by_row else low.narrowed(left, read[0])
    right = low.narrowed(right, read[1])
    if by_row:
        joined = as_of_now.joined(low, left, right, pairs, rest, "left")
    elif node["join_type"] == "SINGLE" and not rest:
        joined = _single(low, left, right, pairs)
    elif node["join_type"] in _KINDS:
        joined = _join(low, left, right, pairs, rest, _KINDS[node["join_type"]])
    else:
        refuse({"type": f"a join of kind {node['join_type'].lower()}"}, "is not supported")
    return _mapped(node, joined, len(left.columns), len(right.columns))


def inner(
    low: Lowering, left: Relation, right: Relation, pairs: Sequence[Pair], rest: Sequence[Json]
) -> Relation:
    """Add an inner join; `rest` are conditions over the columns of both sides."""
    return _join(low, left, right, pairs, rest, "inner")


def _mapped(node: Json, joined: Relation, left: int, right: int) -> Relation:
    """Select the columns that the node outputs."""
    keep_left = node.get("left_projection_map") or list(range(left))
    keep_right = node.get("right_projection_map") or list(range(right))
    if node["join_type"] in ("SEMI", "ANTI"):
        return joined.pick(keep_left)
    return joined.pick([*keep_left, *(left + n for n in keep_right)])


def _join(
    low: Lowering,
    left: Relation,
    right: Relation,
    pairs: Sequence[Pair],
    rest: Sequence[Json],
    kind: Kind,
) -> Relation:
    pairs = [_never_null(low, left, right, pair) for pair in pairs]
    if kind == "inner" and not rest:
        leading = rows_at_extreme.lower(low, left, right, pairs)
        if leading is not None:
            return leading
    equal, uneven = keys(left, right, pairs)
    left_held, left_on = keyed(low, left, [(p[0], p[2]) for p in equal])
    right_held, right_on = keyed(low, right, [(p[1], p[2]) for p in equal])
    width = len(left.columns)
    both = [(0, c) for c in left.columns] + [(1, c) for c in right.columns]
    # each column is stored once, even if it is shown several times
    places = list(dict.fromkeys((side, c.name) for side, c in both))
    named = dict(zip(places, fresh_names(name for _, name in places), strict=True))
    columns = [(named[place], *place) for place in places]
    out = [StepColumn(named[side, c.name], c.type) for side, c in both]
    conditions = [
        f"({render(a, out[:width])} {comparison(how)} {render(b, out[width:])})" for a, b, how in uneven
    ]
    conditions += [render(c, out) for c in rest]
    timed = [compared(a, shifted(b, -width), how) for a, b, how in pairs]
    known = tuple(spans([*timed, *rest], [*left.names, *right.names], width))
    if not columns:
        columns, out = [(fresh_names(["nothing"])[0], 0, low.builder.shape(left.step).schema.names[0])], []
    # A single row, such as the result of a scalar subquery, is broadcast to the other side.
    single = not right_on and low.builder.shape(right_held.step).key == () and kind in _LEFT_KINDS
    operator = Join(
        tuple(left_on),
        tuple(right_on),
        kind,
        tuple(columns),
        " AND ".join(conditions) if conditions else None,
        "right" if single else None,
    )
    step = low.add(operator, (left_held.step, right_held.step), "join", spans=known)
    shown = out[:width] if kind in ("semi", "anti") else out
    return Relation(step, tuple(shown))


def _never_null(low: Lowering, left: Relation, right: Relation, pair: Pair) -> Pair:
    """Turn IS NOT DISTINCT FROM into an equality for times bounded by a watermark, which are never NULL."""
    for side, node in ((left, pair[0]), (right, pair[1])):
        bounded = {b.column for b in low.shape(side).bounds}
        plain = node["expression_class"] == "BOUND_REF"
        if plain and pair[2] in _EQUAL and side.columns[int(node["index"])].name in bounded:
            return pair[0], pair[1], "COMPARE_EQUAL"
    return pair


def keys(left: Relation, right: Relation, pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Split comparisons into equalities that become keys and the rest; a column is in the key once."""
    equal: list[Pair] = []
    others: list[Pair] = []
    met: set[tuple[int, str]] = set()
    for pair in pairs:
        plain = pair[2] == "COMPARE_EQUAL"
        names = {
            (side, relation.columns[int(node["index"])].name)
            for side, (relation, node) in enumerate(((left, pair[0]), (right, pair[1])))
            if plain and node["expression_class"] == "BOUND_REF"
        }
        if pair[2] in _EQUAL and not names & met:
            equal.append(pair)
            met |= names
        else:
            others.append(pair)
    return equal, others


def keyed(low: Lowering, side: Relation, keys: Sequence[tuple[Json, str]]) -> tuple[Relation, list[str]]:
    """Add the join key columns to the relation; NULLs that compare as equal become values."""
    low.keyed((type_of(node) for node, _ in keys), "an equality of a join")
    plain: list[tuple[str, str, str] | str] = []
    for number, (node, how) in enumerate(keys):
        bare = side.columns[int(node["index"])].name if node["expression_class"] == "BOUND_REF" else None
        text = quoted(bare) if bare is not None else render(node, side.columns)
        if how == "COMPARE_EQUAL":
            plain.append(bare if bare is not None else (f"key_{number}", text, type_of(node)))
        else:
            kind = type_of(node)
            shown = render(node, side.columns)
            plain.append((f"null_{number}", f"({text} IS NULL)", "BOOLEAN"))
            plain.append(
                (
                    f"key_{number}",
                    f"COALESCE({shown}, {zero(kind)})"
                    if zero(kind)
                    else f"COALESCE(CAST({shown} AS VARCHAR), '')",
                    kind if zero(kind) else "VARCHAR",
                )
            )
    made = [p for p in plain if not isinstance(p, str)]
    if not made:
        return side, [p for p in plain if isinstance(p, str)]
    own = {c.name: c for c in side.columns}
    names = iter(fresh_names([n for n, _, _ in made], own))
    wanted = [(n, quoted(n), c.type) for n, c in own.items()]
    on = []
    for part in plain:
        if isinstance(part, str):
            on.append(part)
        else:
            name = next(names)
            wanted.append((name, part[1], part[2]))
            on.append(name)
    return Relation(low.compute(side, wanted, "keys").step, side.columns), on


def zero(kind: str) -> str | None:
    """Return some value of a type to use in place of NULL."""
    if kind in ("VARCHAR",):
        return "''"
    if kind == "BOOLEAN":
        return "false"
    if kind == "DATE":
        return "DATE '1970-01-01'"
    if kind.startswith("TIMESTAMP") and "ZONE" not in kind:
        return f"CAST('1970-01-01' AS {kind})"
    if kind.startswith("DECIMAL") or kind in (
        "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT",
        "DOUBLE", "FLOAT",
    ):  # fmt: skip
        return f"CAST(0 AS {kind})"
    return None


# -- subqueries -----------------------------------------------------------------------


def _single(low: Lowering, left: Relation, right: Relation, pairs: Sequence[Pair]) -> Relation:
    """Join a scalar subquery: at most one row for each outer row; a second one becomes an error row."""
    held, on = keyed(low, right, [(p[1], p[2]) for p in pairs if p[2] in _EQUAL])
    key = low.builder.shape(held.step).key
    if any(p[2] not in _EQUAL for p in pairs):
        refuse({"type": "this correlated subquery"}, "is not supported")
    by = {c.name for c in right.columns if c.name in on} | set(on)
    values_by = {p[1]["index"]: True for p in pairs if p[1]["expression_class"] == "BOUND_REF"}
    told = {right.columns[int(i)].name for i in values_by} | by
    if key is not None and set(key) <= told:
        return _join(low, left, right, pairs, (), "left")
    names = list(dict.fromkeys(low.builder.shape(held.step).schema.names))
    guard = f"count(*) OVER ({'PARTITION BY ' + ', '.join(quoted(n) for n in on) if on else ''})"
    picked = ", ".join(
        f"CASE WHEN {guard} > 1 THEN error({text_literal(MORE_THAN_ONE)}) ELSE {quoted(n)} END AS {quoted(n)}"
        if n not in on
        else quoted(n)
        for n in names
    )
    only = PerKey(tuple(on), sql=f"select {picked} from input", passes=tuple(on))
    one = low.add(only, (held.step,), "only")
    return _join(low, left, Relation(one, right.columns), pairs, (), "left")


def lower_mark(low: Lowering, node: Json, conditions: Sequence[Json], left: Relation) -> Relation:
    """x IN (…) and EXISTS: return all rows of the left with a mark that says whether they have a partner.

    The mark can be NULL (unknown).  If a condition tests only the mark, only the rows that satisfy it are
    computed.  The mark follows the columns of the left that the node shows; conditions may read others.
    """
    from millpond.sql.lowering.rules.filter import kept

    low.need(node["children"][1], (r for c in node["conditions"] for r in references(c["right"])))
    right = low.lower(node["children"][1])
    left = low.narrowed(left, need_sides(low, node)[0])
    width = len(left.columns)
    shown = node.get("left_projection_map") or list(range(width))
    place = len(shown)
    pairs = [(c["left"], c["right"], c["comparison"]) for c in node["conditions"]]
    wanted, rest = None, []
    for condition in conditions:
        if _is_ref(condition, place) and wanted is None:
            wanted = True
        elif (
            condition.get("type") == "OPERATOR_NOT"
            and _is_ref(condition["children"][0], place)
            and wanted is None
        ):
            wanted = False
        else:
            rest.append(condition)
    mark = fresh_names(["mark"], left.names)[0]
    parts = []
    if wanted is not False:
        yes = _join(low, left, right, pairs, (), "semi")
        parts.append(_marked(low, yes, left, mark, "true"))
    if wanted is not True:
        no = _join(low, left, right, pairs, (), "anti")
        parts.append(_unmatched(low, no, left, right, pairs, mark))
    step = parts[0].step if len(parts) == 1 else low.add(Union(), tuple(p.step for p in parts), "marked")
    found = Relation(step, (*parts[0].columns[:width], StepColumn(mark, "BOOLEAN"))).pick([*shown, width])
    if wanted is False:
        found = Relation(low.add(Filter(f"NOT {quoted(mark)}"), (found.step,), "where"), found.columns)
    return kept(low, found, rest)


def _is_ref(node: Json, place: int) -> bool:
    return node["expression_class"] == "BOUND_REF" and int(node["index"]) == place


def _marked(low: Lowering, rows: Relation, like: Relation, mark: str, value: str) -> Relation:
    names = fresh_names(like.names)
    wanted = [(n, quoted(c.name), c.type) for n, c in zip(names, rows.columns, strict=True)]
    return low.compute(rows, [*wanted, (mark, value, "BOOLEAN")], "mark")


def _unmatched(
    low: Lowering, rows: Relation, left: Relation, right: Relation, pairs: Sequence[Pair], mark: str
) -> Relation:
    """Mark rows without a partner: false, or NULL if a NULL on either side might have been the partner."""
    asked = [p for p in pairs if p[2] != "COMPARE_NOT_DISTINCT_FROM"]
    if not asked:
        return _marked(low, rows, left, mark, "false")
    if len(asked) > 1 or asked[0][2] != "COMPARE_EQUAL":
        return _perhaps(low, rows, left, right, pairs, mark)
    within = [p for p in pairs if p[2] == "COMPARE_NOT_DISTINCT_FROM"]
    (ours, theirs, _) = asked[0]
    held, on = keyed(low, right, [(p[1], p[2]) for p in within])
    value = fresh_names(["value"], [*on, *right.names])[0]
    wanted = [(n, quoted(n), "") for n in on] + [(value, render(theirs, right.columns), type_of(theirs))]
    narrow = low.compute(held, wanted, "values")
    aggs = (Agg("rows_in", "count"), Agg("given_in", "count", value))
    on_names = [c.name for c in narrow.columns[: len(on)]]
    shape = low.builder.shape(narrow.step)
    if shape.schema.names[-1] != value:
        aggs = (Agg("rows_in", "count"), Agg("given_in", "count", narrow.columns[-1].name))
    facts = low.add(
        Aggregate(tuple(on_names), aggs, feeds_for(aggs, shape.append_only)), (narrow.step,), "facts"
    )
    ours_held, ours_on = keyed(low, rows, [(p[0], p[2]) for p in within])
    names = fresh_names([*rows.names, "rows_in", "given_in"])
    columns = [(n, 0, c.name) for n, c in zip(names, rows.columns, strict=False)]
    columns += [(names[-2], 1, "rows_in"), (names[-1], 1, "given_in")]
    known = low.add(
        Join(tuple(ours_on), tuple(on_names), "left", tuple(columns)), (ours_held.step, facts), "known"
    )
    out = [StepColumn(n, c.type) for n, c in zip(names, rows.columns, strict=False)]
    n, given = quoted(names[-2]), quoted(names[-1])
    unknown = f"{render(ours, out)} IS NULL OR {given} < {n}"
    value_sql = f"CASE WHEN {n} IS NULL OR {n} = 0 THEN false WHEN {unknown} THEN NULL ELSE false END"
    return _marked(low, Relation(known, tuple(out)), left, mark, value_sql)


def _perhaps(
    low: Lowering, rows: Relation, left: Relation, right: Relation, pairs: Sequence[Pair], mark: str
) -> Relation:
    """Mark rows NULL if, for some row of the right, every comparison is true or NULL; else false."""
    within = [p for p in pairs if p[2] == "COMPARE_NOT_DISTINCT_FROM"]
    asked = [p for p in pairs if p[2] != "COMPARE_NOT_DISTINCT_FROM"]
    width = len(rows.columns)
    parts = []
    for kind, value in (("semi", "NULL"), ("anti", "false")):
        left_held, left_on = keyed(low, rows, [(p[0], p[2]) for p in within])
        right_held, right_on = keyed(low, right, [(p[1], p[2]) for p in within])
        names = fresh_names([*rows.names, *right.names])
        columns = [(n, 0, c.name) for n, c in zip(names[:width], rows.columns, strict=True)]
        columns += [(n, 1, c.name) for n, c in zip(names[width:], right.columns, strict=True)]
        out = [StepColumn(n, c.type) for n, c in zip(names, (*rows.columns, *right.columns), strict=True)]
        text = " AND ".join(
            f"(({render(a, out[:width])} {comparison(how)} {render(b, out[width:])}) IS NOT FALSE)"
            for a, b, how in asked
        )
        operator = Join(tuple(left_on), tuple(right_on), kind, tuple(columns), text)  # type: ignore[arg-type]
        step = low.add(operator, (left_held.step, right_held.step), "perhaps")
        parts.append(_marked(low, Relation(step, tuple(out[:width])), left, mark, f"{value}::BOOLEAN"))
    step = low.add(Union(), tuple(p.step for p in parts), "marked")
    return Relation(step, parts[0].columns)
