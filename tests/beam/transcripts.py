"""Random transcripts: rows, watermarks and clock steps, and the windows with triggers to run over them.

Law: a transcript is a function of its seed. Times are whole seconds; rows come out of order, share times, are late,
and watermarks advance over windows that have no rows. One input serves several cases, so that one pond
can run them all as views beside each other.

A step is ["rows", [[key, at, id], ...]], ["watermark", at] or ["clock", seconds]. An id is a number below 60:
a pane's rows are read back from the sum of 2**id. A case is {"window", "trigger", "mode", "lateness"}.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

MODES = ("accumulating", "discarding", "retracting")
KEYS = "abcdefghijklmnopqrst"
IDS_MAX = 60  # of one key
DEPTH_MAX = 3

Spec = list[Any]


def transcript(
    seed: int, cases: int = 12, keys: int = 3, length: int = 16, delays: bool = False
) -> dict[str, Any]:
    """An input and cases over it; `delays` adds clock steps and triggers of processing time.

    Keys do not touch each other: many of them are many inputs that share their watermarks.
    """
    chance = random.Random(seed)
    return {
        "seed": seed,
        "steps": steps(chance, keys, length, delays),
        "cases": [case(chance, delays) for _ in range(cases)],
    }


def steps(chance: random.Random, keys: int, length: int, delays: bool) -> list[list[Any]]:
    watermark = chance.choice([-40, 0, 100])
    spread = {
        key: chance.choice([3, 8, 15, 30]) for key in KEYS[:keys]
    }  # how far rows are from the watermark
    count = dict.fromkeys(spread, 0)
    found: list[list[Any]] = []
    for _ in range(chance.randint(4, length)):
        kind = chance.random()
        if delays and kind < 0.3:
            found.append(["clock", chance.randint(1, 6)])
        elif kind < 0.4:
            watermark += chance.choice([1, 2, 5, 5, 7, 10, 10, 18, 40])
            found.append(["watermark", watermark])
        else:
            rows: list[list[Any]] = []
            for key in chance.sample(list(spread), chance.randint(1, keys)):
                for _ in range(min(chance.choice([1, 1, 1, 1, 2, 3, 5]), IDS_MAX - count[key])):
                    at = watermark + chance.randint(-spread[key], spread[key])
                    if rows and chance.random() < 0.2:
                        at = int(rows[-1][1])
                    rows.append([key, at, count[key]])
                    count[key] += 1
            if rows:
                chance.shuffle(rows)
                found.append(["rows", rows])
    if chance.random() < 0.5:
        found.append(["watermark", watermark + 200])  # every window ends and expires
    return found


def case(chance: random.Random, delays: bool) -> dict[str, Any]:
    window = windows(chance, delays)
    firing = delay_trigger(chance) if delays else trigger(chance, DEPTH_MAX)
    while window == ["everything"] and not may_fire(firing):
        firing = trigger(chance, DEPTH_MAX)
    return {
        "window": window,
        "trigger": firing,
        "mode": chance.choice(MODES),
        "lateness": chance.choice([0, 0, 3, 7, 20, 100]),
    }


def windows(chance: random.Random, delays: bool) -> Spec:
    name = chance.choice(["tumbling", "sliding", "everything", *([] if delays else ["sessions", "sessions"])])
    if name == "tumbling":
        return [name, chance.choice([5, 10])]
    if name == "sliding":
        return [name, *chance.choice([(10, 5), (10, 3), (6, 2)])]
    return [name, chance.choice([4, 10])] if name == "sessions" else [name]


def trigger(chance: random.Random, depth: int) -> Spec:
    """Nested triggers; the common ones are the most frequent."""
    name = chance.choice(
        ["after_count", "after_watermark", "always", "never"]
        if depth == 1
        else [
            "after_count",
            *["after_watermark"] * 4,
            *["repeatedly"] * 3,
            "after_any",
            "after_all",
            "after_each",
            "or_finally",
        ]
    )
    if name == "after_count":
        return [name, chance.randint(1, 4)]
    if name in ("always", "never"):
        return [name] if name == "always" or chance.random() < 0.3 else ["after_count", chance.randint(1, 3)]
    if name == "after_watermark":
        early = trigger(chance, depth - 1) if depth > 1 and chance.random() < 0.6 else None
        late = trigger(chance, depth - 1) if depth > 1 and chance.random() < 0.6 else None
        return [name, early, late]
    if name == "repeatedly":
        return [name, trigger(chance, depth - 1)]
    parts = 2 if name == "or_finally" else chance.randint(2, 3)
    return [name, *(trigger(chance, depth - 1) for _ in range(parts))]


def delay_trigger(chance: random.Random) -> Spec:
    """Triggers of processing time in the places where Beam's driver treats them as documented.

    It asks every part of the tree when the timer of one part is due, and it does not tell parts of after_any and
    after_all that a delay has fired; so a delay stands alone, is repeated, comes first in after_each, or
    fires before the watermark.
    """
    delay = ["after_delay", chance.randint(1, 5)]
    count = ["after_count", chance.randint(1, 3)]
    return chance.choice(
        [
            delay,
            ["repeatedly", delay],
            ["after_watermark", delay, chance.choice([None, count])],
            ["after_each", delay, count],
            ["repeatedly", ["after_each", count, delay]],
        ]
    )


def may_fire(spec: Spec) -> bool:
    """Whether it can fire at all; a window that never ends must have a trigger that can."""
    name, *parts = spec
    if name in ("after_any", "or_finally"):
        return any(map(may_fire, parts))
    if name == "after_all":
        return all(map(may_fire, parts))
    if name in ("after_each", "repeatedly"):
        return may_fire(parts[0])
    return bool(name != "never")


def smaller(steps: Sequence[Any]) -> Iterator[list[list[Any]]]:
    """Inputs that are a part of this one, large cuts first, to find the smallest that still fails."""
    keys = sorted({row[0] for action, what in steps if action == "rows" for row in what})
    for key in keys if len(keys) > 1 else ():
        yield of_key(steps, key)
    yield from ([*steps[: len(steps) // 2]], [*steps[len(steps) // 2 :]])
    for n in range(len(steps)):
        yield [*steps[:n], *steps[n + 1 :]]
    for n, (action, what) in enumerate(steps):
        for row in what if action == "rows" and len(what) > 1 else ():
            yield [*steps[:n], [action, [one for one in what if one != row]], *steps[n + 1 :]]


def of_key(steps: Sequence[Any], key: str) -> list[list[Any]]:
    """The input with the rows of one key."""
    found = [
        [action, [row for row in what if row[0] == key] if action == "rows" else what]
        for action, what in steps
    ]
    return [[action, what] for action, what in found if what != []]


def simpler(spec: Spec | None) -> list[Spec]:
    """Triggers that are a part of this one, or this one with a simpler part."""
    if spec is None:
        return []
    parts = [part for part in spec[1:] if isinstance(part, list)]
    found = list(parts)
    for n, part in enumerate(spec):
        if isinstance(part, list):
            found += [[*spec[:n], one, *spec[n + 1 :]] for one in simpler(part)]
            if spec[0] == "after_watermark":
                found.append([*spec[:n], None, *spec[n + 1 :]])
    return found


def smallest(
    case: dict[str, Any], steps: list[list[Any]], fails: Callable[[dict[str, Any], list[list[Any]]], bool]
) -> tuple[dict[str, Any], list[list[Any]]]:
    """A case and an input that fail, of which no part can be left out."""
    while True:
        fewer = ((case, part) for part in smaller(steps) if part and part != steps)
        plainer = (({**case, "trigger": one}, steps) for one in simpler(case["trigger"]))
        found = next((one for one in itertools.chain(fewer, plainer) if fails(*one)), None)
        if found is None:
            return case, steps
        case, steps = found


def coverage(transcripts: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of windows, triggers and modes in some transcripts."""
    names: set[str] = set()

    def walk(spec: Any) -> None:
        if isinstance(spec, list):
            names.add(spec[0])
            for part in spec[1:]:
                walk(part)

    for one in transcripts:
        for of in one["cases"]:
            walk(of["window"])
            walk(of["trigger"])
            names.add(of["mode"])
    return names
