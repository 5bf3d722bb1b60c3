"""Joins of two relations by pairs of expressions and other conditions."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.operators.join import Join, Kind
from millpond.sql.binding.types import quoted
from millpond.sql.bound.expressions import BoundExpression, Comparison, Reference, shifted
from millpond.sql.bound.words import EQUALITIES
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.join_time_bounds import spans
from millpond.sql.lowering.lowering import Lowering
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps import rows_at_extreme

Pair = tuple[BoundExpression, BoundExpression, str]  # left expression, right expression, comparison

_LEFT_KINDS = ("inner", "left", "semi", "anti")  # kinds that never show a row of the right without a partner


def joined(
    low: Lowering,
    left: Relation,
    right: Relation,
    pairs: Sequence[Pair],
    rest: Sequence[BoundExpression],
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
    conditions = [f"({render(a, out[:width])} {how} {render(b, out[width:])})" for a, b, how in uneven]
    conditions += [render(c, out) for c in rest]
    timed = [Comparison(how, a, shifted(b, -width), type="BOOLEAN") for a, b, how in pairs]
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
        plain = isinstance(node, Reference) and side.columns[node.index].name in bounded
        if plain and pair[2] in EQUALITIES:
            return pair[0], pair[1], "="
    return pair


def keys(left: Relation, right: Relation, pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Split comparisons into equalities that become keys and the rest; a column is in the key once."""
    equal: list[Pair] = []
    others: list[Pair] = []
    met: set[tuple[int, str]] = set()
    for pair in pairs:
        plain = pair[2] == "="
        names = {
            (side, relation.columns[node.index].name)
            for side, (relation, node) in enumerate(((left, pair[0]), (right, pair[1])))
            if plain and isinstance(node, Reference)
        }
        if pair[2] in EQUALITIES and not names & met:
            equal.append(pair)
            met |= names
        else:
            others.append(pair)
    return equal, others


def keyed(
    low: Lowering, side: Relation, keys: Sequence[tuple[BoundExpression, str]]
) -> tuple[Relation, list[str]]:
    """Add the join key columns to the relation; NULLs that compare as equal become values."""
    low.keyed((node.type for node, _ in keys), "an equality of a join")
    plain: list[tuple[str, str, str] | str] = []
    for number, (node, how) in enumerate(keys):
        bare = side.columns[node.index].name if isinstance(node, Reference) else None
        text = quoted(bare) if bare is not None else render(node, side.columns)
        if how == "=":
            plain.append(bare if bare is not None else (f"key_{number}", text, node.type))
        else:
            kind = node.type
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
