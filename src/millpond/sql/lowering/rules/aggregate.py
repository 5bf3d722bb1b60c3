"""GROUP BY: uses accumulators where they are exact, else recomputes changed groups from their rows.

Without a group there is always one result row, even for no input: an extra input row
that no aggregate counts guarantees that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millpond.flow.exact_aggregates import most_frequent
from millpond.kernels.accumulators import NUMERIC_AVG, WIDE_SUM
from millpond.kernels.aggregate_feeds import Agg, feeds_for
from millpond.kernels.expressions import compile_expressions
from millpond.kernels.synopses.sketch_accumulators import OF_HASHES, needs_inserts
from millpond.kernels.synopses.sql_functions import item_hash
from millpond.operators.aggregate import Aggregate
from millpond.operators.distinct import Distinct
from millpond.operators.filter import Filter
from millpond.operators.per_key import PerKey
from millpond.operators.union import Union
from millpond.sql.binding.types import as_stored, quoted
from millpond.sql.bound.expressions import AggregateCall, BoundExpression, columns_read, references
from millpond.sql.bound.list_aggregates import is_list_aggregate, python_aggregate
from millpond.sql.bound.relations import BoundAggregate
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.lowering.lowering import Lowering, bare
from millpond.sql.lowering.relation import Relation, fresh_names
from millpond.sql.lowering.steps import (
    distinct_values,
    panes,
    session_groups,
    sliced_groups,
    synopsis_aggregate,
)
from millpond.sql.lowering.steps.constant_rows import constant, with_nothing
from millpond.sql.lowering.steps.distinct_rows import LIVE, distinct_rows
from millpond.sql.lowering.steps.latest_window import in_latest
from millpond.sql.lowering.steps.python_aggregate import in_python
from millpond.sql.lowering.time_bounds import closing
from millpond.sql.refusal import NotSupported, refuse

_FAST = {
    "count_star": "count",
    "count": "count",
    "sum": "sum",
    "sum_no_overflow": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "var_samp": "var_samp",
    "variance": "var_samp",
    "var_pop": "var_pop",
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    NUMERIC_AVG: NUMERIC_AVG,
}
_NUMBERS = frozenset(
    [
        *("DECIMAL", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        *("UBIGINT", "HUGEINT", "DOUBLE", "FLOAT"),
    ]
)
_INTEGERS = frozenset(
    ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"]
)
_CONVERTED = ("BIGINT", "DECIMAL(38,0)")  # types of sums that DuckDB returns as HUGEINT
_WIDE = ("HUGEINT", "DECIMAL(38,0)")
# Without ORDER BY any row may be taken: the least value is always the same one.
_ANY = ("first", "any_value", "arbitrary", "last")


def lower(low: Lowering, node: BoundAggregate) -> Relation:
    wanted, first = node.read, len(node.groups)
    unread = [first + n for n in range(len(node.calls)) if wanted is not None and first + n not in wanted]
    calls = tuple(call for n, call in enumerate(node.calls) if first + n not in unread)
    return _in_place(_lowered(low, replace(node, calls=calls)), unread)


def _in_place(found: Relation, unread: Sequence[int]) -> Relation:
    """Put another column at the positions of unread aggregates, which are not computed and cannot fail."""
    columns = list(found.columns)
    nothing = columns[0] if columns else StepColumn("nothing", "BOOLEAN")
    for place in unread:
        columns.insert(place, nothing)
    return Relation(found.step, tuple(columns))


def _lowered(low: Lowering, node: BoundAggregate) -> Relation:
    source = low.lower(node.input)
    groups, calls = node.groups, node.calls
    if low.emission.trigger is not None and panes.waiting(low.builder.plan, source.step) is not None:
        return _in_panes(low, source, node)
    if len(node.sets) > 1 or node.groupings:
        parts = [
            _grouping_set(low, source, groups, calls, chosen, node.groupings)
            for chosen in node.sets or (tuple(range(len(groups))),)
        ]
        if len(parts) == 1:
            return parts[0]
        names = parts[0].names
        exact = [low.exact(p, names) for p in parts]
        return Relation(low.add(Union(), tuple(p.step for p in exact), "sets"), exact[0].columns)
    return _grouped(low, source, groups, calls)


def _in_panes(low: Lowering, source: Relation, node: BoundAggregate) -> Relation:
    if len(node.sets) > 1 or node.groupings:
        raise NotSupported(
            f"{low.emission.clause} cannot be followed by several grouping sets",
            at=low.position_of("group"),
            hint="write a view for each of them",
        )
    return panes.in_panes(low, source, node.groups, node.calls, columns_read(node.calls), _grouped)


def _grouping_set(
    low: Lowering,
    source: Relation,
    groups: Sequence[BoundExpression],
    calls: Sequence[AggregateCall],
    chosen: Sequence[int],
    functions: Sequence[Sequence[int]],
) -> Relation:
    """Compute one of several grouping sets: the groups that it leaves out are NULL."""
    found = _grouped(low, source, [groups[n] for n in chosen], calls)
    wanted = []
    for n, group in enumerate(groups):
        kind = group.type
        column = found.columns[chosen.index(n)] if n in chosen else None
        sql = quoted(column.name) if column is not None else f"CAST(NULL AS {kind})"
        wanted.append((group.alias or f"group_{n}", sql, kind))
    for column in found.columns[len(chosen) :]:
        wanted.append((column.name, quoted(column.name), column.type))
    for number, arguments in enumerate(functions):
        bits = "".join("0" if n in chosen else "1" for n in arguments)
        wanted.append((f"grouping_{number}", f"CAST({int(bits, 2)} AS BIGINT)", "BIGINT"))
    return low.compute(found, wanted, "set")


def _grouped(
    low: Lowering, source: Relation, groups: Sequence[BoundExpression], calls: Sequence[AggregateCall]
) -> Relation:
    low.keyed((g.type for g in groups), "GROUP BY")
    apart = [c for c in calls if c.distinct]
    low.keyed((a.type for c in apart for a in c.arguments), "DISTINCT in an aggregate")
    if not groups and not calls:
        found = constant(low, "select true as nothing", ["nothing"], ["BOOLEAN"])
        return Relation(found.step, ())
    if groups and not calls:
        made = low.project(source, groups, _names(groups, "group"))
        return distinct_rows(low, made, "groups")
    append_only = low.shape(source).append_only
    if not append_only:
        calls = [synopsis_aggregate.exact(call) for call in calls]
    if any(python_aggregate(call) is not None for call in calls):
        return in_python(low, source, groups, calls, _grouped)
    fast = [_fast(call, append_only) for call in calls]
    if all(f is not None for f in fast):
        return _by_accumulators(low, source, groups, calls, [f for f in fast if f is not None])
    if any(map(is_list_aggregate, calls)):
        return in_python(low, source, groups, calls, _grouped)
    return _by_query(low, source, groups, calls)


def _names(nodes: Sequence[BoundExpression], base: str) -> list[str]:
    return [node.alias or f"{base}_{n}" for n, node in enumerate(nodes)]


def _fast(call: AggregateCall, append_only: bool) -> str | None:
    """Return the accumulator for an aggregate, if one computes it exactly or as well as the call promises."""
    name = call.name
    if call.orders:
        return None
    if name in _ANY and len(call.arguments) == 1:
        return "min" if _ordered_as_stored(call.arguments[0].type) else None
    if (sketch := synopsis_aggregate.accumulated(call)) is not None:
        return sketch if append_only or not needs_inserts(sketch) else None
    found = _FAST.get(name)
    if found in ("sum", "avg", NUMERIC_AVG, "var_samp", "var_pop", "stddev_samp", "stddev_pop"):
        kind = call.arguments[0].type.split("(")[0]
        if found == "sum" and call.type in _WIDE and kind in _INTEGERS:
            return WIDE_SUM
        return found if kind in _NUMBERS else None
    if found in ("min", "max"):
        plain = len(call.arguments) == 1 and _ordered_as_stored(call.arguments[0].type)
        return found if plain else None
    return found


def _ordered_as_stored(kind: str) -> bool:
    """Does the stored form of a type sort like its values?"""
    words = ("STRUCT", "TUPLE", "MAP", "UNION", "ENUM", "BIT", "INTERVAL", "TIME WITH TIME ZONE")
    return not kind.endswith("]") and not kind.startswith(words)


def _by_accumulators(
    low: Lowering,
    source: Relation,
    groups: Sequence[BoundExpression],
    calls: Sequence[AggregateCall],
    functions: Sequence[str],
) -> Relation:
    keys = fresh_names(_names(groups, "group"))
    wanted = [(n, bare(g, source), g.type) for n, g in zip(keys, groups, strict=True)]
    arguments: dict[str, str] = {}
    aggs: list[Agg] = []
    outs = fresh_names([c.alias or c.name for c in calls], keys)
    always = not groups
    taken = [*keys, *outs]
    if always:
        (live,) = fresh_names([LIVE], taken)
        taken.append(live)
        wanted.append((live, "1", "INTEGER"))
    together = distinct_values.gather(calls, functions, source.columns, taken)
    taken += [name for name, _, _ in together.wanted] + list(together.argument_of.values())
    wanted += together.wanted
    for number, (out, call, function) in enumerate(zip(outs, calls, functions, strict=True)):
        if number in together.argument_of:
            aggs.append(Agg(out, function, together.argument_of[number], True))
            continue
        text = render(call.arguments[0], source.columns) if call.arguments else None
        if function in OF_HASHES and text is not None:
            text = item_hash(text)
        if call.filter is not None:
            condition = render(call.filter, source.columns)
            text = f"CASE WHEN {condition} THEN {text if text is not None else '1'} END"
        if text is None:
            aggs.append(Agg(out, "count", live if always else None))
            continue
        if text not in arguments:
            (name,) = fresh_names([f"{out}_of"], taken)
            taken.append(name)
            arguments[text] = name
            kind = call.arguments[0].type if call.arguments else "INTEGER"
            kind = "UBIGINT" if function in OF_HASHES else kind
            wanted.append((name, text, kind))
        aggs.append(Agg(out, function, arguments[text], distinct_values.is_distinct(call, function)))
    read = columns_read(calls)
    if groups:
        given_groups, arguments_of = dict(zip(keys, groups, strict=True)), wanted[len(keys) :]
        for rule in (session_groups, sliced_groups):
            found = rule.lower(low, source, given_groups, arguments_of, aggs, read)
            if found is not None:
                shown = [StepColumn(n, c.type) for n, c in zip(outs, calls, strict=True)]
                return _typed(low, Relation(found.step, (*found.columns, *shown)), len(keys))
    spread = None
    if all(f.kind == "rows" for f in feeds_for(aggs, low.builder.shape(source.step).append_only)):
        source, spread = in_latest(low, source, dict(zip(keys, groups, strict=True)), read)
    rows = low.compute(source, wanted, "arguments")
    if always:
        rows = with_nothing(low, rows)
    feeds = together.feeds(feeds_for(aggs, low.builder.shape(rows.step).append_only))
    closes = closing(low, keys, rows.step)
    inputs = []
    for feed in feeds:
        if feed.kind != "distinct":
            inputs.append(rows.step)
            continue
        value = together.of(feed)
        if value is not None:
            inputs.append(low.add(value.operator(keys), (rows.step,), "distinct", early=closes is not None))
            continue
        assert feed.column is not None
        given = low.add(Filter(f"{quoted(feed.column)} IS NOT NULL"), (rows.step,), "given")
        columns = tuple(dict.fromkeys((*keys, feed.column)))
        inputs.append(low.add(Distinct(columns), (given,), "distinct", early=closes is not None))
    operator = Aggregate(tuple(keys), tuple(aggs), feeds, closes, spread=spread)
    step = low.add(operator, tuple(inputs), "group")
    made = [StepColumn(n, g.type) for n, g in zip(keys, groups, strict=True)]
    made += [StepColumn(n, c.type) for n, c in zip(outs, calls, strict=True)]
    return _typed(low, Relation(step, tuple(made)), len(keys))


def _typed(low: Lowering, found: Relation, keys: int) -> Relation:
    """Cast aggregates to the types that SQL defines, where accumulators return others."""
    schema = low.builder.shape(found.step).schema
    wanted, changed = [], False
    for number, column in enumerate(found.columns):
        bare = quoted(column.name)
        if number < keys:
            wanted.append((column.name, bare, column.type))
            continue
        cast = f"CAST({bare} AS {column.type})"
        kind = compile_expressions(schema, {"x": cast}).field("x").type
        if kind == schema.field(column.name).type:
            wanted.append((column.name, bare, column.type))
        else:
            wanted.append((column.name, cast, column.type))
            changed = True
    return low.compute(found, wanted, "typed") if changed else found


def _by_query(
    low: Lowering, source: Relation, groups: Sequence[BoundExpression], calls: Sequence[AggregateCall]
) -> Relation:
    """Compute any aggregate: store the rows of each group, and recompute a group when one of them changes."""
    keys = fresh_names(_names(groups, "group"))
    wanted = [(n, bare(g, source), g.type) for n, g in zip(keys, groups, strict=True)]
    taken = list(keys)

    made_of: dict[str, StepColumn] = {}

    def column(node: BoundExpression, base: str) -> StepColumn:
        text = render(node, source.columns)
        if text not in made_of:
            (name,) = fresh_names([base], taken)
            taken.append(name)
            wanted.append((name, text, node.type))
            made_of[text] = StepColumn(name, node.type)
        return made_of[text]

    (live,) = fresh_names([LIVE], taken)
    taken.append(live)
    wanted.append((live, "1", "INTEGER"))
    outs = fresh_names([c.alias or c.name for c in calls], taken)
    taken += outs
    texts = []
    for out, call in zip(outs, calls, strict=True):
        text = as_stored(_call(call, column, live), call.type)
        texts.append(f"{text} AS {quoted(out)}")
    rows = low.compute(source, wanted, "arguments")
    if not groups:
        rows = with_nothing(low, rows)
    listed = [f"{quoted(k)}" for k in keys]
    grouped = f" GROUP BY {', '.join(listed)}" if listed else ""
    sql = f"select {', '.join([*listed, *texts])} from input{grouped}"
    step = low.add(PerKey(tuple(keys), sql=sql, passes=tuple(keys)), (rows.step,), "group")
    made = [StepColumn(n, g.type) for n, g in zip(keys, groups, strict=True)]
    made += [StepColumn(n, c.type) for n, c in zip(outs, calls, strict=True)]
    return Relation(step, tuple(made))


def _call(call: AggregateCall, column: Callable[[BoundExpression, str], StepColumn], live: str) -> str:
    """Render one aggregate call over columns that `column` creates."""
    name = call.name
    if name.startswith("reservoir"):
        why = "draws rows by chance, and gives another value every time"
        refuse(name, why, call.at, "use quantile_cont")
    filters = [f"{quoted(live)} IS NOT NULL"]
    if call.filter is not None:
        filters.append(column(call.filter, "filter").sql)
    parts = []
    for child in call.arguments:
        constant_text = None if list(references(child)) else render(child, ())
        parts.append(constant_text if constant_text is not None else column(child, "argument").sql)
    word = "DISTINCT " if call.distinct else ""
    orders = [o for o in call.orders if list(references(o.expression))]  # order by a constant has no effect
    by = ""
    if orders:
        by = " ORDER BY " + ", ".join(f"{column(o.expression, 'by').sql} {o.direction}" for o in orders)
    if name == "approx_top_k":
        return most_frequent(parts[0], parts[1], f"FILTER (WHERE {' AND '.join(filters)})")
    inner = "*" if name == "count_star" else ", ".join(parts)

    def made(shown: str) -> str:
        return f"{quoted(shown)}({word}{inner}{by}) FILTER (WHERE {' AND '.join(filters)})"

    if name == NUMERIC_AVG:
        return f'"pg.numeric_divide.1"(CAST({made("sum")} AS VARCHAR), CAST({made("count")} AS VARCHAR))'
    found = made("count" if name == "count_star" else name)
    return f"CAST({found} AS {call.type})" if name == "sum" and call.type in _CONVERTED else found
