"""Follows the key by which a source is shed through a plan.

Law: a step that combines rows combines only rows of one key, or it is refused.  Then its output for a kept
key is what it would be without shedding, whatever the step computes.

Each step gets, for every source that sheds, the *alternatives*: tuples of its columns that hold the key.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from millpond.kernels.window_assigners import Tumbling
from millpond.operators.assign_windows import AssignWindows
from millpond.operators.distinct import Distinct
from millpond.operators.filter import Filter
from millpond.operators.filter_rows import FilterRows
from millpond.operators.flat_map import FlatMap
from millpond.operators.join import Join
from millpond.operators.map import Map
from millpond.operators.map_batches import MapBatches
from millpond.operators.materialize import Materialize
from millpond.operators.scan import Scan
from millpond.operators.top_n import TopN
from millpond.operators.union import Union
from millpond.operators.unnest import Unnest
from millpond.operators.watermark import Watermark
from millpond.operators.window import END, START, Hop, Tumble
from millpond.plan.nodes import Node, Plan

Alternatives = frozenset[tuple[str, ...]]

_SAME_COLUMNS = (Filter, FilterRows, Union, Watermark, Materialize, Unnest, Tumble, Hop, AssignWindows)
_OWN_COLUMNS = (FlatMap, MapBatches)  # user code: nobody knows which column is which
_KEEPS_COLUMNS = (TopN, Distinct)


class CannotSample(Exception):
    """Why a source cannot be shed."""


@dataclass(frozen=True)
class SampledBy:
    """How rows of a source are chosen."""

    by: Literal["row", "key", "window", "score"] = "row"
    key: tuple[str, ...] = ()  # the columns of the key, or the time


@dataclass(frozen=True)
class ShedWindow:
    """Windows of which entire ones are shed."""

    column: str  # of the source: the time
    size_us: int
    offset_us: int
    watermarks: tuple[str, ...]  # steps that know the newest time


@dataclass(frozen=True)
class KeyRules:
    """How the key of a source travels."""

    readers: frozenset[str]  # the first steps with state
    partners: frozenset[str]
    keys: Mapping[str, Alternatives]  # by step: the columns that hold the key
    window: ShedWindow | None = None


@dataclass(frozen=True)
class _Track:
    """The key of one source at one step."""

    columns: Alternatives
    is_time: bool = False  # the columns hold times, and not yet windows
    has_state: bool = False  # did the rows pass a step with state?


_Tracks = dict[str, _Track]


def key_rules(plan: Plan, chosen: Mapping[str, SampledBy], source: str) -> KeyRules:
    """Follow the keys of all sources that are shed by key or window; raise for the one asked about."""
    if chosen[source].by == "window":
        return _window_rules(plan, chosen, source)
    return _followed(plan, chosen, source)


def _window_rules(plan: Plan, chosen: Mapping[str, SampledBy], source: str) -> KeyRules:
    """Those of the first time column with which the source can be shed."""
    mine = chosen[source]
    schema = plan.nodes[source].binding.shape.schema
    times = [f.name for f in schema if str(f.type).startswith(("timestamp", "date"))]
    reason = CannotSample(f"source {source!r} has no column with a time")
    for column in mine.key or times:
        try:
            return _followed(plan, {**chosen, source: SampledBy("window", (column,))}, source)
        except CannotSample as found:
            reason = found
    raise reason


def _followed(plan: Plan, chosen: Mapping[str, SampledBy], source: str) -> KeyRules:
    tracks: dict[str, _Tracks] = {}
    readers: set[str] = set()
    partners: set[str] = set()
    windows: list[tuple[int, int]] = []
    watermarks: list[str] = []
    for node in plan.topological():
        operator = node.operator
        if isinstance(operator, Scan):
            mine = chosen.get(node.step)
            if mine is not None and mine.by in ("key", "window"):
                tracks[node.step] = {node.step: _Track(frozenset({mine.key}), mine.by == "window")}
            continue
        tracks_in = [tracks.get(step, {}) for step in node.inputs]
        if not any(tracks_in):
            continue
        of_source = [one[source] for one in tracks_in if source in one]
        if of_source and isinstance(operator, Watermark):
            watermarks += [node.step] if _holds(of_source[0], operator.time) else []
        if of_source and isinstance(operator, Tumble | AssignWindows) and of_source[0].is_time:
            windows += _tumbling(node.step, of_source[0], operator)
        try:
            out = _after(node, tracks_in)
        except CannotSample:
            if of_source:
                raise
            continue  # another source: it is not shed, and its rows are complete
        tracks[node.step] = out
        if of_source and out[source].has_state:
            partners |= out.keys() - {source}
            if not any(track.has_state for track in of_source):
                readers.add(node.step)
        elif of_source and isinstance(operator, Materialize):
            readers.add(node.step)
    window = None
    if chosen[source].by == "window":
        window = _one_window(source, chosen[source].key[0], windows, watermarks)
    keys = {step: mine[source].columns for step, mine in tracks.items() if source in mine}
    return KeyRules(frozenset(readers), frozenset(partners), keys, window)


def _holds(track: _Track, column: str) -> bool:
    return track.is_time and (column,) in track.columns


def _tumbling(step: str, track: _Track, operator: Tumble | AssignWindows) -> Iterator[tuple[int, int]]:
    if not _holds(track, operator.time):
        raise CannotSample(f"step {step!r} has windows by another time")
    if isinstance(operator, Tumble):
        yield operator.size_us, operator.offset_us
    elif isinstance(operator.windows, Tumbling):
        yield operator.windows.size_us, operator.windows.offset_us
    else:
        raise CannotSample(f"step {step!r} has windows that overlap, or differ in size")


def _one_window(
    source: str, column: str, windows: list[tuple[int, int]], watermarks: list[str]
) -> ShedWindow:
    if not windows:
        raise CannotSample(f"no tumbling window is made of column {column!r} of source {source!r}")
    if not watermarks:
        raise CannotSample(f"source {source!r} has no watermark: nobody knows which windows have begun")
    size, offset = max(windows)
    for other, shift in windows:
        if size % other or (offset - shift) % other:
            raise CannotSample(f"windows of {size} us are not whole windows of {other} us")
    return ShedWindow(column, size, offset, tuple(watermarks))


# -- one step --------------------------------------------------------------------------------


def _after(node: Node, inputs: list[_Tracks]) -> _Tracks:
    operator, names = node.operator, set(node.binding.shape.schema.names)
    if isinstance(operator, Join):
        return _joined(node, operator, inputs)
    if isinstance(operator, Map):
        (tracks,) = inputs
        passed: dict[str, list[str]] = {}
        for new, old in operator.passes(node.binding).items():
            passed.setdefault(old, []).append(new)
        return {s: _renamed(t, passed) for s, t in tracks.items()}
    if isinstance(operator, _OWN_COLUMNS):
        return {s: _Track(frozenset(), t.is_time, t.has_state) for one in inputs for s, t in one.items()}
    if isinstance(operator, _SAME_COLUMNS):
        return _united(node, inputs, names)
    return _keyed(node, inputs, names)


def _renamed(track: _Track, passed: Mapping[str, list[str]]) -> _Track:
    renamed = {
        new for old in track.columns for new in itertools.product(*(passed.get(column, []) for column in old))
    }
    return _Track(frozenset(renamed), track.is_time, track.has_state)


def _united(node: Node, inputs: list[_Tracks], names: set[str]) -> _Tracks:
    """Steps without state of their own: what several inputs share is what all of them have."""
    tracks: _Tracks = {}
    makes_windows = isinstance(node.operator, Tumble | AssignWindows)
    for one in inputs:
        for source, track in one.items():
            if makes_windows and track.is_time:
                track = _Track(frozenset({(START,), (END,)}), False, track.has_state)
            elif isinstance(node.operator, Hop) and track.is_time:
                raise CannotSample(f"step {node.step!r} has windows that overlap")
            columns = frozenset(c for c in track.columns if names.issuperset(c))
            if source in tracks:
                columns &= tracks[source].columns
            tracks[source] = _Track(columns, track.is_time, track.has_state)
    return tracks


def _keyed(node: Node, inputs: list[_Tracks], names: set[str]) -> _Tracks:
    """A step with state: rows meet those with the same placement only."""
    placed_by = set(node.binding.placed_by or ())
    if isinstance(node.operator, _KEEPS_COLUMNS):
        placed_by = names
    found: _Tracks = {}
    shared: Alternatives | None = None
    for placement, tracks in zip(node.binding.placements, inputs, strict=True):
        for source, track in tracks.items():
            mine = frozenset(c for c in track.columns if set(placement.key).issuperset(c))
            if placement.kind != "hash" or track.is_time or not mine:
                raise CannotSample(f"step {node.step!r} combines rows of {source!r} with different keys")
            shared = mine if shared is None else shared & mine
            out = frozenset(c for c in mine if placed_by.issuperset(c))
            if source in found:
                out &= found[source].columns
            found[source] = _Track(out, False, True)
    if not shared:
        raise CannotSample(f"step {node.step!r} combines sources that are shed by different keys")
    return found


def _joined(node: Node, join: Join, inputs: list[_Tracks]) -> _Tracks:
    """A join pairs rows; each pair must belong to one key, and rows without a partner, too."""
    ons = (join.left_on, join.right_on)
    unmatched = (
        {"left", "full", "anti", "semi"},
        {"right", "full"},
    )  # kinds with rows of a side by themselves
    both = all(inputs)
    found: _Tracks = {}
    shared: set[tuple[int, ...]] | None = None
    for side, tracks in enumerate(inputs):
        for source, track in tracks.items():
            if track.is_time:
                raise CannotSample(f"step {node.step!r} joins rows of {source!r} that are in no window")
            places = {
                tuple(ons[side].index(c) for c in columns)
                for columns in track.columns
                if set(ons[side]).issuperset(columns)
            }
            if not places and (both or join.kind in unmatched[1 - side]):
                raise CannotSample(f"step {node.step!r} joins rows of {source!r} with different keys")
            if both:
                shared = places if shared is None else shared & places
            columns = {out for old in track.columns for out in _shown(join, side, old)}
            for other in (0, 1):
                columns |= {
                    out
                    for index in places
                    for out in _shown(join, other, tuple(ons[other][n] for n in index))
                }
            if source in found:
                columns &= found[source].columns
            found[source] = _Track(frozenset(columns), False, True)
    if both and not shared:
        raise CannotSample(f"step {node.step!r} joins sources that are not shed by the same part of its key")
    return found


def _shown(join: Join, side: int, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The output columns that hold columns of one side; NULL where an outer join finds no partner."""
    lacks = {"left": 1, "right": 0}.get(join.kind)
    if join.kind == "full" or lacks == side:
        return iter(())
    names = [[new for new, of, old in join.columns if of == side and old == c] for c in columns]
    return itertools.product(*names)
