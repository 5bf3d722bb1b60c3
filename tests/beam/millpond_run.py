"""Millpond's answer to a transcript: every case a view of one pond, through the public API on the inline engine.

Law: a step of the transcript is one epoch. Rows never move the watermark (its delay is longer than any transcript);
steps that name a watermark do. Panes are read from the changes of a view: with mode accumulating and discarding each
pane is one inserted row, with retracting also the pane before is deleted.

The rows of a pane come back from `sum(2**id)`, which names each of them: a row counted twice or with another
sign would change it, and `count(*)` says how many there must be.
"""

from __future__ import annotations

import bisect
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from millpond.flow.stream import Stream
from millpond.pond.api import Pond
from millpond.sources.memory import MemorySource
from millpond.testing import Harness
from tests.beam.translate import trigger_of, window_of

START = datetime.datetime(1970, 1, 1)
SECOND = datetime.timedelta(seconds=1)
DELAY = "365d"
SCHEMA = {"k": str, "at": datetime.datetime, "bit": int}

Answer = dict[str, list[Any]]


def run(
    cases: Sequence[Mapping[str, Any]], steps: Sequence[Sequence[Any]], disturb: str | None = None
) -> list[list[Answer]]:
    """Of each case, per step: panes, retracted panes, and late rows [key, id].

    `disturb` is done after every step: "crash", "compact" or "rescale"; it must not change an answer.
    """

    def pipeline(pond: Pond, rows: MemorySource) -> None:
        stream = pond.stream("rows", rows).watermark("at", DELAY)
        for number, case in enumerate(cases):
            define(stream, case, number)

    with Harness(pipeline, {"rows": SCHEMA}, parallelism=2 if disturb == "rescale" else 1) as harness:
        began = harness.pond.epoch
        reached = []  # the newest epoch after each step
        for number, (action, what) in enumerate(steps):
            if action == "rows":
                harness.feed(
                    "rows", *({"k": k, "at": START + at * SECOND, "bit": 1 << row} for k, at, row in what)
                )
            elif action == "watermark":
                harness.watermark("rows", START + what * SECOND)
            else:
                harness.advance(what)
            reached.append(harness.epoch())
            if disturb == "crash":
                harness.crash()
            elif disturb == "compact":
                harness.compact()
            elif disturb == "rescale":
                harness.rescale(1 + number % 3)
        return [answers(case, harness.pond, number, began, reached) for number, case in enumerate(cases)]


def define(stream: Stream, case: Mapping[str, Any], number: int) -> None:
    windowed = stream.key_by("k").window(
        window_of(case["window"]),
        trigger=trigger_of(case["trigger"]),
        allowed_lateness=case["lateness"],
        mode=case["mode"],
        panes=True,
    )
    windowed.aggregate(n="count(*)", bits="sum(bit)").view(f"v{number}")
    windowed.late().view(f"late{number}")


def answers(
    case: Mapping[str, Any], pond: Pond, number: int, began: int, reached: Sequence[int]
) -> list[Answer]:
    """What the views of a case told after each step."""
    told: list[Answer] = [{"panes": [], "retracted": [], "late": []} for _ in reached]
    for delta in pond.changes(f"v{number}", since=began):
        answer = told[bisect.bisect_left(reached, delta.epoch)]
        for row in delta.table.to_pylist():
            answer["panes" if row["_w"] > 0 else "retracted"] += [pane_of(case, row)] * abs(row["_w"])
    for delta in pond.changes(f"late{number}", since=began):
        answer = told[bisect.bisect_left(reached, delta.epoch)]
        for row in delta.table.to_pylist():
            assert row["_w"] > 0, row
            answer["late"] += [[row["k"], row["bit"].bit_length() - 1]] * row["_w"]
    return told


def pane_of(case: Mapping[str, Any], row: Mapping[str, Any]) -> list[Any]:
    bits = int(row["bits"] or 0)
    ids = [one for one in range(bits.bit_length()) if bits >> one & 1]
    assert len(ids) == row["n"], row
    bounds = [seconds(row["window_start"]), seconds(row["window_end"])]
    if case["window"][0] == "everything":
        bounds = [None, None]
    return [row["k"], *bounds, ids, row["pane"], row["pane_timing"], row["pane_last"]]


def seconds(at: datetime.datetime | None) -> int | None:
    return None if at is None else round((at.replace(tzinfo=None) - START) / SECOND)
