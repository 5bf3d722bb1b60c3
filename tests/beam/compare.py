"""What Millpond must answer to a transcript, from what Beam's driver answered.

Law: every difference between the two that is on purpose is a function of this file, and there is no other.

1. `last_panes`: rows that no pane has delivered come in a last pane when their window expires. Beam's Python driver
   drops them; its Java runners emit them too.
2. Rows that Beam drops, because their window has expired or its trigger has finished, are late rows. So are rows of
   a session that had not fired when it merged with a finished one (`buried`); Beam forgets them.
3. `retractions`: Beam has none. A pane takes back the newest pane of its window, or of the sessions merged into it.
4. `difference`: the pane of a session that merged is taken back when the merged session fires, but at the
   latest when its own window expires: later steps drop its state then.

What Beam leaves to its runners is decided in `oracle`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Answer = dict[str, list[Any]]


def expected(case: Mapping[str, Any], beam: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Per step: panes, retracted panes, and late rows."""
    delivered: set[tuple[Any, ...]] = set()
    newest: dict[tuple[Any, ...], list[Any]] = {}
    answers = []
    for step in beam:
        panes = list(step["panes"])
        for pane in panes:
            delivered |= {delivery(case, pane, row) for row in pane[3]}
        panes += last_panes(case, step["expired"], delivered)
        buried = [[key, row] for key, row in step["buried"] if (key, row) not in delivered]
        retracted = retractions(panes, newest) if case["mode"] == "retracting" else []
        answers.append({"panes": panes, "retracted": retracted, "late": [*step["dropped"], *buried]})
    return answers


def delivery(case: Mapping[str, Any], window: Sequence[Any], row: int) -> tuple[Any, ...]:
    """A row of a window; a row is in one session, whose bounds can change."""
    key, start, end = window[:3]
    return (key, row) if case["window"][0] == "sessions" else (key, start, end, row)


def last_panes(
    case: Mapping[str, Any], expired: Sequence[Sequence[Any]], delivered: set[tuple[Any, ...]]
) -> list[list[Any]]:
    found = []
    for key, start, end, rows, panes, ended in expired:
        if any(delivery(case, (key, start, end), row) not in delivered for row in rows):
            found.append([key, start, end, rows, panes, "late" if ended else "on_time", True])
    return found


def retractions(panes: Sequence[list[Any]], newest: dict[tuple[Any, ...], list[Any]]) -> list[list[Any]]:
    """The panes that these take back; `newest` holds the newest of each window and is brought up to date."""
    found = []
    for pane in panes:
        key, start, end = pane[:3]
        for of in [w for w in newest if w[0] == key and (start is None or (start <= w[1] and w[2] <= end))]:
            found.append(newest.pop(of))
        newest[key, start, end] = pane
    return found


def difference(want: Sequence[Answer], got: Sequence[Answer]) -> int | None:
    """The first step in which two answers differ, if any.  A pane may be taken back before it is expected."""
    early: Counter[str] = Counter()
    for number, (one, other) in enumerate(zip(want, got, strict=True)):
        for name in one:
            wanted, found = Counter(map(json.dumps, one[name])), Counter(map(json.dumps, other[name]))
            if name == "retracted":
                early += found - wanted
                missing = wanted - found
                if missing - early:
                    return number
                early -= missing
            elif wanted != found:
                return number
    return None


def report(
    case: Mapping[str, Any],
    steps: Sequence[Sequence[Any]],
    want: Sequence[Answer],
    got: Sequence[Answer],
) -> str:
    """A failing case for people to read."""
    lines = [json.dumps(case)]
    for (action, what), one, other in zip(steps, want, got, strict=True):
        lines.append(f"  {action} {json.dumps(what)}")
        for name in one:
            a, b = (sorted(map(json.dumps, side[name])) for side in (one, other))
            if a != b:
                lines += [
                    f"      {name}: want {line}"
                    for line in a
                    if line not in b or a.count(line) != b.count(line)
                ]
                lines += [
                    f"      {name}: got  {line}"
                    for line in b
                    if line not in a or a.count(line) != b.count(line)
                ]
            elif a:
                lines += [f"      {name}: {line}" for line in a]
    return "\n".join(lines)
