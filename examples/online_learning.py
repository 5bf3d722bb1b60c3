"""Online learning: one model per machine, kept as state, that learns from every reading.

Each reading is guessed before its truth is learnt from, so the accuracy is that on rows never seen
(progressive validation).  A model of `river` is a Python object: untyped state holds it as a pickle.

    pip install -e ".[examples]" && python examples/online_learning.py

It runs on Spark and needs Java 17.  With engine="inline" it runs in this process and gives the same.
"""

import operator
import random
import tempfile
from dataclasses import dataclass
from typing import Any

from river import linear_model, optim, preprocessing

import millpond
from millpond import Process, ProcessContext, ValueState
from millpond.sources.memory import MemorySource


def new_model() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression(optim.SGD(0.1))


@dataclass
class Score:
    machine: str
    readings: int
    accuracy: float


class Learn(Process):
    model = ValueState(default=new_model)  # no type: any picklable object; changed in place, it is stored
    readings = ValueState(int, default=0)
    right = ValueState(int, default=0)

    def on_row(self, row: Any, ctx: ProcessContext) -> Score:
        seen = {"heat": row.heat, "noise": row.noise, "load": row.load}
        guess = self.model.value.predict_one(seen)
        self.model.value.learn_one(seen, row.fails)
        self.readings.value += 1
        self.right.value += guess == row.fails
        return Score(row.machine, self.readings.value, round(self.right.value / self.readings.value, 3))


def readings(count: int) -> list[dict[str, Any]]:
    """Each machine fails for a reason of its own; one in twenty fails for none."""
    reasons = {"press": (2.0, 0.0, -1.0), "drill": (-1.0, 3.0, 0.0), "lathe": (0.5, 0.5, 2.0)}
    rows = []
    for n in range(count):
        machine = sorted(reasons)[n % 3]
        heat, noise, load = (random.gauss(0, 1) for _ in range(3))
        fails = sum(map(operator.mul, reasons[machine], (heat, noise, load))) > 0
        fails ^= random.random() < 0.05
        rows.append(dict(machine=machine, heat=70 + 9 * heat, noise=30 + 4 * noise, load=load, fails=fails))
    return rows


random.seed(3)
source = MemorySource({"machine": str, "heat": float, "noise": float, "load": float, "fails": bool})

with millpond.open(tempfile.mkdtemp(), parallelism=2) as pond:
    pond.stream("readings", source).key_by("machine").process(Learn, latest=True, id="learn").view("scores")
    for count in (60, 300, 2000):
        source.push(readings(count))
        epoch = pond.drain()
        scores = pond.read("scores").sort_by("machine").to_pylist()
        print(
            f"epoch {epoch}:", ", ".join("{machine} {accuracy:.1%} of {readings}".format(**s) for s in scores)
        )
