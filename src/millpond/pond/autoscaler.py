"""Changes the number of tasks and executors of a running pond as its load asks for, or says what it would do.

Law: a decision is a function of manifests alone (`control/scaling.py`).
It is an entry of the inbox, so a manifest has it, with its reason, before it has an effect.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from millpond.control.executor_scaling import ExecutorPolicy, decide_executors
from millpond.control.inbox_sender import InboxSender
from millpond.control.live_settings import live_settings
from millpond.control.scaling import EpochLoad, ScalingDecision, ScalingPolicy, decide
from millpond.control.symptoms import EPOCHS, Symptom, TaskTimes, diagnosed
from millpond.engine.engine import ElasticEngine, Engine, Executors
from millpond.settings import Settings
from millpond.state.manifest.manifest import Manifest

HISTORY_EPOCHS = 300


def load_of(manifest: Manifest) -> EpochLoad | None:
    """What an epoch says about the load; None if it ran no tasks.

    >>> metrics = {"rows": 90, "ms": 12.5, "tasks": [1, 2], "tasks_us": [5, 7, 9], "backlog": {"orders": 40}}
    >>> load_of(Manifest("p", 7, 1, "n", 1_000, metrics=metrics))
    EpochLoad(at_us=1000, rows=90, ms=12.5, backlog_rows=40, tasks=(1, 2), useful_us=(5, 16))
    """
    metrics = manifest.metrics
    if "tasks" not in metrics or not metrics.get("tasks_us"):
        return None
    times, useful, first = list(metrics["tasks_us"]), [], 0
    for count in metrics["tasks"]:
        useful.append(sum(times[first : first + count]))
        first += count
    backlog = sum(metrics.get("backlog", {}).values())
    tasks = tuple(int(n) for n in metrics["tasks"])
    return EpochLoad(
        manifest.now_us, int(metrics["rows"]), float(metrics["ms"]), backlog, tasks, tuple(useful)
    )


def times_of(manifest: Manifest) -> TaskTimes:
    """How long each task of each level worked, and where.

    >>> metrics = {"tasks": [1, 2], "tasks_us": [5, 7, 9], "hosts": {"names": ["a", "b"], "of": [0, 0, 1]}}
    >>> times_of(Manifest("p", 7, 1, "n", 1_000, metrics=metrics))
    TaskTimes(levels=((5,), (7, 9)), hosts=(('a',), ('a', 'b')))
    """
    metrics = manifest.metrics
    ends = list(itertools.accumulate(metrics["tasks"]))
    cuts = list(zip([0, *ends], ends, strict=False))
    times = list(metrics["tasks_us"])
    hosts = metrics.get("hosts")
    named = [] if hosts is None else [hosts["names"][n] for n in hosts["of"]]
    return TaskTimes(
        tuple(tuple(times[a:b]) for a, b in cuts), tuple(tuple(named[a:b]) for a, b in cuts) if named else ()
    )


def sinks_behind(manifest: Manifest) -> dict[str, int]:
    """How many epochs each sink lacks that receives any."""
    return {s: manifest.epoch - at for s, at in manifest.cursors.items() if s not in manifest.detached}


class Autoscaler:
    """Hears every epoch that this process commits, and sends a rescale when one is worth it."""

    def __init__(self, settings: Settings, sender: InboxSender, engine: Callable[[], Engine]) -> None:
        self._opened_with = self._settings = settings
        self._sender, self._engine = sender, engine
        self._tasks: deque[tuple[int, int]] = deque(maxlen=HISTORY_EPOCHS)  # (when, the tasks from then on)
        self._executors_us: int | None = None  # when a number of executors was decided
        self._executors: int | None = None  # what was decided last
        self._history: deque[EpochLoad] = deque(maxlen=HISTORY_EPOCHS)
        self._times: deque[TaskTimes] = deque(maxlen=EPOCHS)
        self._decided_us: int | None = None
        self._named: frozenset[tuple[str, str]] = frozenset()  # symptoms that were told last
        self._named_us: int | None = None

    def __call__(self, manifest: Manifest) -> None:
        self._settings = live_settings(self._opened_with, manifest.settings)
        self._apply(manifest)
        load = load_of(manifest)
        if load is None or self._settings.autoscale == "off":
            return
        self._history.append(load)
        self._tasks.append((load.at_us, manifest.parallelism))
        self._times.append(times_of(manifest))
        symptoms = diagnosed(self._times, sinks_behind(manifest))
        decision = decide(list(self._history), manifest.parallelism, self._decided_us, self._policy())
        if decision is not None:
            self._decided_us = load.at_us
            self._name(symptoms, load.at_us)
            recorded = {**self._recorded(decision), "symptoms": "; ".join(str(s) for s in symptoms)}
            recorded |= self._executors_for(decision.tasks, load.at_us, decision.reason)
            self._sender.append("rescale", {"parallelism": decision.tasks, "scaling": recorded})
        elif more := self._executors_for(manifest.parallelism, load.at_us):
            tasks = manifest.parallelism
            recorded = {"mode": self._settings.autoscale, "before": tasks, **more}
            self._sender.append("rescale", {"parallelism": tasks, "scaling": recorded})
        elif self._is_news(symptoms, load.at_us):
            self._name(symptoms, load.at_us)
            tasks = manifest.parallelism
            reason = "; ".join(str(s) for s in symptoms)
            recorded = {"mode": "symptom", "before": tasks, "reason": "nothing to change", "symptoms": reason}
            self._sender.append("rescale", {"parallelism": tasks, "scaling": recorded})

    def _is_news(self, symptoms: Sequence[Symptom], at_us: int) -> bool:
        """Were these not told yet?  A symptom that comes and goes is not told with every epoch."""
        pause_us = self._settings.scaling_pause_ms * 1000
        if self._named_us is not None and at_us - self._named_us < pause_us:
            return False
        return bool(symptoms) and not self._named.issuperset((s.name, s.where) for s in symptoms)

    def _name(self, symptoms: Sequence[Symptom], at_us: int) -> None:
        self._named, self._named_us = frozenset((s.name, s.where) for s in symptoms), at_us

    def _elastic(self) -> Executors | None:
        """The executors, if their number may be changed."""
        if not self._settings.executors_max:
            return None
        engine = self._engine()
        return engine.executors if isinstance(engine, ElasticEngine) else None

    def _executors_for(self, tasks: int, at_us: int, *reasons: str) -> dict[str, Any]:
        """The executors that so many tasks need, with the reason, if their number should change."""
        executors, settings = self._elastic(), self._settings
        if executors is None:
            return {}
        pause_us = settings.scaling_pause_ms * 1000
        most = settings.executors_max
        policy = ExecutorPolicy(min(settings.executors_min, most), most, executors.cores_each, pause_us)
        before = executors.wanted if self._executors is None else self._executors
        history = [*self._tasks, (at_us, tasks)]
        decision = decide_executors(history, before, self._executors_us, policy)
        if decision is None:
            return {}
        self._executors_us, self._executors = at_us, decision.executors
        return {"executors": decision.executors, "reason": "; ".join([*reasons, decision.reason])}

    def _apply(self, manifest: Manifest) -> None:
        """Ask for the executors that a committed decision names."""
        scaling = manifest.metrics.get("scaling") or {}
        executors = self._elastic() if "executors" in scaling and scaling["mode"] == "on" else None
        if executors is not None:
            executors.request(int(scaling["executors"]))

    def _policy(self) -> ScalingPolicy:
        settings = self._settings
        most = settings.tasks_max or self._cores_max()
        return ScalingPolicy(
            tasks_min=min(settings.tasks_min, most),
            tasks_max=most,
            target_ms=settings.target_ms,
            catch_up_s=settings.backlog_ms_max / 1000,
            cool_down_us=settings.scaling_pause_ms * 1000,
            hold_us=4 * settings.scaling_pause_ms * 1000,
        )

    def _cores_max(self) -> int:
        executors = self._elastic()
        if executors is None:
            return self._engine().default_parallelism
        return self._settings.executors_max * executors.cores_each

    def _recorded(self, decision: ScalingDecision) -> dict[str, object]:
        return {
            "mode": self._settings.autoscale,
            "before": decision.before,
            "levels": list(decision.levels),
            "rows_per_s": round(decision.rows_per_s, 1),
            "reason": decision.reason,
        }
