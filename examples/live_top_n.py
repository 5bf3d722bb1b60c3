"""A live top-N: the songs that are played most right now, where a play counts half after ten minutes.

A Process keeps a score per song; latest=True makes it one row per song, and top_n ranks those rows exactly:
when a score changes, the old row leaves the ranking and the new one takes its place.

    python examples/live_top_n.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import math
import random
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import millpond
from millpond import ValueState
from millpond.sources.memory import MemorySource

START = datetime(2026, 3, 1, 20)
HALF_LIFE = timedelta(minutes=10)


@dataclass
class Score:
    song: str
    plays: int
    heat: float


def heat(
    row: Any, plays: ValueState[int] = ValueState(int, default=0), heat: ValueState[float] = ValueState(float)
) -> Score:
    """The log of the sum of 2 ** (time / half life): later plays count more, and no score must fade."""
    play = (row.at - START) / HALF_LIFE
    before = heat.value
    if before is None:
        heat.value = play
    else:
        low, high = sorted((before, play))
        heat.value = high + math.log2(1 + 2 ** (low - high))
    plays.value += 1
    return Score(row.song, plays.value, heat.value)


random.seed(20)
songs = ["Anthem", "Ballad", "Carol", "Dirge", "Etude", "Fugue"]
source = MemorySource({"song": str, "at": datetime})


def played(minute: int, count: int, taste: list[int]) -> list[dict[str, Any]]:
    """Plays within ten minutes, by how much each song is liked."""
    when = [START + timedelta(minutes=minute, seconds=random.uniform(0, 600)) for _ in range(count)]
    return [{"song": random.choices(songs, taste)[0], "at": at} for at in when]


with millpond.open(tempfile.mkdtemp(), engine="inline", parallelism=2) as pond:
    scores = pond.stream("plays", source).key_by("song").process(heat, latest=True, id="heat")
    scores.top_n(3, "heat desc", id="chart").view("chart")
    epochs = []
    for minute, taste in ((0, [9, 7, 5, 1, 1, 1]), (10, [2, 4, 9, 1, 1, 1]), (20, [1, 1, 4, 1, 9, 1])):
        source.push(played(minute, 200, taste))
        epochs.append(pond.drain())

    for number, epoch in enumerate(epochs, 1):  # every chart can still be read
        chart = pond.read("chart", epoch=epoch).sort_by([("heat", "descending")]).to_pylist()
        print(f"after {number}0 minutes:", ", ".join(f"{r['song']} ({r['plays']} plays)" for r in chart))
    print("what the last epoch did to the chart:")
    for row in (
        pond.diff("chart", epochs[1], epochs[2])
        .sort_by([("_w", "ascending"), ("song", "ascending")])
        .to_pylist()
    ):
        print("   ", "+" if row["_w"] > 0 else "-", row["song"], row["plays"])
