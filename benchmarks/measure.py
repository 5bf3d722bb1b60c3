"""Memory and processor time of a process tree, sampled from /proc.

Law: a sample is the sum over the tree alive at that moment, and processor time never loses a child: what a
reaped child used is counted in its parent. The sampler reads clocks; the arithmetic on samples does not.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    at: float  # wall clock, so that it can be compared with another process's log
    rss_bytes: int
    rss_anon_bytes: int
    cpu_seconds: float
    machine_cpu_seconds: float


@dataclass(frozen=True)
class Usage:
    peak_rss_bytes: int
    peak_rss_anon_bytes: int
    cpu_seconds: float
    other_cpu_seconds: float


@dataclass(frozen=True)
class _Stat:
    parent: int
    cpu_seconds: float


def _stat(text: str) -> _Stat:
    # The command name may hold spaces and brackets, so fields are counted from the last bracket: state is 0.
    after = text[text.rindex(")") + 2 :].split()
    return _Stat(parent=int(after[1]), cpu_seconds=sum(int(ticks) for ticks in after[11:15]) / _TICKS)


def _memory(text: str) -> tuple[int, int]:
    """(VmRSS, RssAnon) in bytes of a /proc status text; a zombie has neither."""
    found = {"VmRSS": 0, "RssAnon": 0}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in found:
            found[name] = int(rest.split()[0]) * 1024
    return found["VmRSS"], found["RssAnon"]


def _machine_cpu_seconds() -> float:
    """Processor time the machine spent on anything, with time stolen by its host, since it started."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(ticks) for ticks in first[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def tree(root: int) -> dict[int, float]:
    """Processor seconds by process id: `root` and all that descend from it."""
    stats: dict[int, _Stat] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = _stat(Path("/proc", entry, "stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended between the listing and the read: it is no longer part of the tree
        stats[int(entry)] = stat
        children[stat.parent].append(int(entry))
    found: dict[int, float] = {}
    waiting = [root] if root in stats else []
    while waiting:
        pid = waiting.pop()
        found[pid] = stats[pid].cpu_seconds
        waiting.extend(children[pid])
    return found


def sample(root: int) -> Sample:
    processes = tree(root)
    rss = anon = 0
    for pid in processes:
        try:
            one_rss, one_anon = _memory(Path("/proc", str(pid), "status").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since: holds no memory
        rss += one_rss
        anon += one_anon
    return Sample(time.time(), rss, anon, sum(processes.values()), _machine_cpu_seconds())


def usage(samples: Sequence[Sample], start: float, end: float) -> Usage:
    """Peaks and processor time between two wall-clock times, from the samples nearest to them.

    >>> s = [Sample(t, 10 * t, t, t / 2, float(t)) for t in range(5)]
    >>> usage(s, 1.1, 3.2)
    Usage(peak_rss_bytes=30, peak_rss_anon_bytes=3, cpu_seconds=1.0, other_cpu_seconds=1.0)
    """
    if not samples:
        raise ValueError("no samples were taken")
    first = min(range(len(samples)), key=lambda i: abs(samples[i].at - start))
    last = min(range(len(samples)), key=lambda i: abs(samples[i].at - end))
    within = samples[first : last + 1]
    used = within[-1].cpu_seconds - within[0].cpu_seconds
    machine = within[-1].machine_cpu_seconds - within[0].machine_cpu_seconds
    return Usage(
        peak_rss_bytes=max(one.rss_bytes for one in within),
        peak_rss_anon_bytes=max(one.rss_anon_bytes for one in within),
        cpu_seconds=used,
        other_cpu_seconds=max(0.0, machine - used),  # the two counters are read a moment apart
    )


class Sampler:
    """Samples a process tree in the background for as long as the `with` block runs."""

    def __init__(self, root: int, interval_seconds: float = 0.1) -> None:
        self.samples: list[Sample] = []
        self._root = root
        self._interval_seconds = interval_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._failure: Exception | None = None

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._interval_seconds):
                self.samples.append(sample(self._root))
        except Exception as failure:  # handed to the measuring thread when the block ends
            self._failure = failure

    def __enter__(self) -> Sampler:
        self.samples.append(sample(self._root))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        last = sample(self._root)
        if last.cpu_seconds > 0:  # a tree that has ended already would look like one that used nothing
            self.samples.append(last)


def confine(cores: int) -> None:
    """Keep this process, and those it starts, on the first `cores` processors it may use."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < cores:
        raise RuntimeError(f"{cores} cores wanted, {len(allowed)} available")
    os.sched_setaffinity(0, allowed[:cores])
