"""What `pond.shed`, `pond.shedding` and `pond.bounds` do: settings, the bill, and bounds of estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa

from millpond.arguments.call_errors import need_text
from millpond.arguments.durations import Duration, microseconds
from millpond.control.shedding import (
    By,
    Shedding,
    bounds_of_average,
    bounds_of_count,
    bounds_of_ratios,
    bounds_of_sum,
    bounds_of_totals,
)
from millpond.errors import InvalidError
from millpond.identity import one_chunk
from millpond.kernels.expressions import bind
from millpond.kernels.sample_hashes import kept_keys
from millpond.plan.nodes import Plan, upstream
from millpond.plan.sampled_keys import CannotSample, key_rules
from millpond.plan.sheddable import ShedRules, sheddable_source
from millpond.pond.inbox_client import InboxClient
from millpond.serve.reader import Reader
from millpond.state.manifest.manifest import Manifest

HINT = "shed sources whose views aggregate with count, sum or avg, or by a key by which every view groups"

BILL = pa.schema(
    [
        ("source", pa.string()),
        ("view", pa.string()),
        ("by", pa.string()),
        ("state", pa.string()),
        ("rate", pa.float64()),
        ("lowest_rate", pa.float64()),
        ("kept", pa.int64()),
        ("shed", pa.int64()),
        ("recovers", pa.bool_()),
        ("owed", pa.int64()),
        ("error_bound", pa.float64()),
    ]
)


def shed(
    inbox: InboxClient,
    source: str,
    target_lag: Duration | None,
    *,
    by: str,
    key: str | Sequence[str],
    score: str | None,
    floor: float,
    recover: bool,
) -> None:
    """Send the command that lets a source shed rows, or that switches it off."""
    need_text("source", source, "the name of a source")
    columns = (key,) if isinstance(key, str) else tuple(key)
    plan, head = inbox.execution.newest_plan, inbox.components.head()
    settings = checked_settings(plan, head, source, target_lag, by, columns, score, floor, recover)
    inbox.command("shed", {"source": source, "settings": settings})


def checked_settings(
    plan: Plan,
    head: Manifest | None,
    source: str,
    target_lag: Duration | None,
    by: str,
    key: Sequence[str],
    score: str | None,
    floor: float,
    recover: bool,
) -> dict[str, Any] | None:
    """The settings as the manifest records them; None switches shedding off."""
    if target_lag is None:
        return None
    way = _way(by, key, score)
    node = plan.nodes.get(source)
    names = () if node is None else node.binding.shape.schema.names
    if node is not None and (unknown := [name for name in key if name not in names]):
        raise InvalidError(f"no column named {unknown[0]!r}", detail=f"columns are {', '.join(names)}")
    if node is not None and score is not None:
        need_text("score", score, "an SQL expression over the columns of the source")
        schema = node.binding.shape.schema
        key = sorted(bind(schema, f"cast(({score}) as double)", name="score", step=source).needs)
    if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 < floor <= 1:
        raise InvalidError(
            "floor must be above 0 and at most 1", detail=f"got {floor!r}", hint="for example 0.05"
        )
    made = Shedding(microseconds(target_lag), float(floor), way, tuple(key), recover, score)
    others = {} if head is None else head.shedding
    chosen = {name: Shedding.from_json(data).chosen_by for name, data in others.items()}
    try:
        rule = sheddable_source(plan, {**chosen, source: made.chosen_by}, source)
    except CannotSample as reason:
        raise InvalidError(f"rows of {source!r} cannot be shed", detail=str(reason), hint=HINT) from None
    if rule.sticky and not recover:
        raise InvalidError(
            f"rows of {source!r} that are shed must be recovered",
            detail="a key that was shed stays shed until all its rows were read again",
            hint="leave recover=True",
        )
    if rule.window is not None:
        made = replace(made, key=(rule.window.column,))
    return made.settings()


def _way(by: str, key: Sequence[str], score: str | None) -> By:
    way = "score" if score is not None and by == "row" else by
    if way not in get_args(By):
        raise InvalidError("by is 'row', 'key', 'window' or 'score'", detail=f"got {by!r}")
    if (way == "key" and not key) or (way in ("row", "score") and key):
        raise InvalidError(
            "shedding by key needs the columns of the key",
            detail=f"by={by!r}, key={list(key)!r}",
            hint='by="key", key=["user"]',
        )
    if (way == "score") != (score is not None):
        raise InvalidError(
            "shedding by score needs the score",
            detail=f"by={by!r}, score={score!r}",
            hint='by="score", score="price / 100"',
        )
    return cast("By", way)


def bill(plan: Plan, head: Manifest | None) -> pa.Table:
    """For every view of a source that sheds: the share of rows it is computed from."""
    rows: list[dict[str, Any]] = []
    chosen = (
        {} if head is None else {n: Shedding.from_json(one).chosen_by for n, one in head.shedding.items()}
    )
    rules = ShedRules(plan).of(chosen)
    for source, data in sorted({} if head is None else head.shedding.items()):
        assert head is not None
        shedding = Shedding.from_json(data)
        shed = head.counts.get(f"shed/{source}", 0)
        kept = head.counts.get(f"rows/{source}", 0)
        allowed = rules.get(source)
        state = "off" if shedding.target_lag_us is None else "shedding" if shedding.divisor > 1 else "idle"
        reading = (v for v in plan.views.values() if source in upstream(plan, [v.step]))
        for view in sorted(reading, key=lambda v: v.name):
            rows.append(
                {
                    "source": source,
                    "view": view.name,
                    "by": shedding.by,
                    "state": state,
                    "rate": 1 / shedding.divisor,
                    "lowest_rate": 1 / shedding.divisor_max,
                    "kept": kept,
                    "shed": shed,
                    "recovers": shedding.recover and allowed is not None and allowed.recovers,
                    "owed": len(shedding.owed),
                    "error_bound": view.error_bound,
                }
            )
    return pa.Table.from_pylist(rows, schema=BILL)


def bounds(
    reader: Reader,
    view: str,
    *,
    counts: str | Sequence[str],
    sums: Mapping[str, str] | Sequence[str] | None,
    over: str | Sequence[str] | None,
) -> pa.Table:
    """The rows of a view at the newest epoch with bounds of its estimates, or with `over` their totals."""
    count_columns = (counts,) if isinstance(counts, str) else tuple(counts)
    with reader.pinned(None) as snapshot:
        head = snapshot.manifest
        rows = reader.read(view, epoch=head.epoch)
    plan = reader.plan_of(head)
    if over is None:
        if sums is not None and not isinstance(sums, Mapping):
            raise InvalidError("sums needs the column with the squares of each sum", detail=f"got {sums!r}")
        return with_bounds(plan, head, view, rows, sums or {}, count_columns)
    group_columns = (over,) if isinstance(over, str) else tuple(over)
    return totals(plan, head, view, rows, tuple(sums or ()), count_columns, group_columns)


def with_bounds(
    plan: Plan, head: Manifest, view: str, rows: pa.Table, squares: Mapping[str, str], counts: Sequence[str]
) -> pa.Table:
    """A view's rows, with `x_low` and `x_high` beside each count and each sum whose squares it has."""
    shed = _shed_sources(plan, head, view)
    if any(s.by in ("key", "window") and s.divisor_max > 1 for s in shed.values()):
        raise InvalidError(
            f"view {view!r} has no bounds",
            detail="its source is shed by key or window: what is kept is exact, and the rest is missing",
            hint='for totals over all keys ask for bounds(…, over=["region"])',
        )
    divisor = max((s.divisor_max for s in shed.values()), default=1)
    _known(rows, (*counts, *squares, *squares.values()))
    for name in counts:
        rows = _appended(rows, name, bounds_of_count(_floats(rows, name), divisor))
    for name, squared in squares.items():
        rows = _appended(rows, name, bounds_of_sum(_floats(rows, name), _floats(rows, squared), divisor))
        if len(counts) == 1:
            mean, low, high = bounds_of_average(
                _floats(rows, name), _floats(rows, squared), _floats(rows, counts[0]), divisor
            )
            rows = _appended(rows.append_column(f"{name}_avg", pa.array(mean)), f"{name}_avg", (low, high))
    return rows


def totals(
    plan: Plan,
    head: Manifest,
    view: str,
    rows: pa.Table,
    sums: Sequence[str],
    counts: Sequence[str],
    over: Sequence[str],
) -> pa.Table:
    """Totals over all keys, by the columns `over`, with bounds, from the keys that were never shed."""
    shed = {name: s for name, s in _shed_sources(plan, head, view).items() if s.divisor_max > 1}
    if odd := [s.by for s in shed.values() if s.by != "key"]:
        raise InvalidError(
            "totals over keys need a source that is shed by key",
            detail=f"that of view {view!r} is shed by {odd[0]}",
        )
    _known(rows, (*counts, *sums, *over))
    divisor = max((s.divisor_max for s in shed.values()), default=1)
    if shed:
        mask = kept_keys([one_chunk(rows.column(c)) for c in _key_columns(plan, head, view, shed)], divisor)
        rows = rows.filter(pa.array(mask))
    groups = rows.group_by(list(over)).aggregate([]) if over else pa.table({"": [0]})
    places = np.zeros(rows.num_rows, np.int64)
    if over:
        numbered = groups.append_column("__group", pa.array(np.arange(groups.num_rows)))
        asked = rows.select(list(over)).append_column("__row", pa.array(np.arange(rows.num_rows)))
        joined = asked.join(numbered, list(over)).sort_by("__row")
        places = joined.column("__group").to_numpy()
    out = groups if over else groups.select([])
    for name in (*counts, *sums):
        of = bounds_of_totals(_floats(rows, name), places, groups.num_rows, divisor)
        out = _with_column(out, name, of[0])
        out = _appended(out, name, of[1:])
        if name in sums and len(counts) == 1:
            of = bounds_of_ratios(
                _floats(rows, name), _floats(rows, counts[0]), places, groups.num_rows, divisor
            )
            out = _appended(_with_column(out, f"{name}_avg", of[0]), f"{name}_avg", of[1:])
    return out


def _with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    if not table.num_columns:
        return pa.table({name: values})
    return table.append_column(name, pa.array(values))


def _shed_sources(plan: Plan, head: Manifest, view: str) -> dict[str, Shedding]:
    if view not in plan.views:
        raise InvalidError(f"there is no view {view!r}", detail=f"views are {', '.join(sorted(plan.views))}")
    sources = upstream(plan, [plan.views[view].step]) & set(head.shedding)
    return {s: Shedding.from_json(head.shedding[s]) for s in sources}


def _key_columns(plan: Plan, head: Manifest, view: str, shed: Mapping[str, Shedding]) -> tuple[str, ...]:
    """The columns of the view that hold the key by which its sources are shed."""
    chosen = {n: Shedding.from_json(one).chosen_by for n, one in head.shedding.items()}
    shown = {stored: name for name, stored in plan.views[view].columns}
    common: set[tuple[str, ...]] | None = None
    for source in shed:
        keys = key_rules(plan, chosen, source).keys.get(plan.views[view].step, frozenset())
        names = {tuple(shown.get(c, c) for c in key) for key in keys if not shown or shown.keys() >= set(key)}
        common = names if common is None else common & names
    if not common:
        raise InvalidError(
            f"view {view!r} has no bounds",
            detail="it does not show the key by which its source is shed",
            hint="group by the key, too",
        )
    return min(common)


def _known(rows: pa.Table, names: Iterable[str]) -> None:
    if unknown := [n for n in names if n not in rows.column_names]:
        raise InvalidError(
            f"no column named {unknown[0]!r}", detail=f"columns are {', '.join(rows.column_names)}"
        )


def _appended(rows: pa.Table, name: str, ends: tuple[Any, ...]) -> pa.Table:
    low, high = ends
    return rows.append_column(f"{name}_low", pa.array(low)).append_column(f"{name}_high", pa.array(high))


def _floats(rows: pa.Table, name: str) -> Any:
    return rows.column(name).cast(pa.float64()).to_numpy().astype(np.float64)
