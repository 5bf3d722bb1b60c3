"""Applies load shedding to the input of an epoch, and brings shed rows back when there is no backlog.

The decision itself is `control.shedding`; this file turns it into splits, and splits into what the manifest
records: the settings of each source, the divisor of the epoch, and the splits that owe rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from millpond.control.shedding import Shedding, next_divisor
from millpond.plan.sheddable import SheddableSource
from millpond.sources.source import Poll, Split

SHED = "_shed"  # in the record of an admitted split: how many rows it kept

Splits = Mapping[str, Sequence[Split]]


def decided(
    recorded: Mapping[str, Any],
    sheddable: Mapping[str, SheddableSource],
    polls: Mapping[str, Poll],
    rows_per_ms: float | None,
) -> dict[str, Shedding]:
    """The settings of each source, with the divisor of the next epoch.

    A source that a new view made exact is not shed, whatever its settings say.  Rows are not read again for a
    view that did not see the others: what was owed before it was defined is lost.
    """
    found = {}
    for step, data in recorded.items():
        shedding = Shedding.from_json(data)
        poll = polls.get(step)
        backlog = 0 if poll is None else (poll.backlog_rows or 0) + sum(s.rows for s in poll.splits)
        allowed = sheddable.get(step)
        readers = frozenset[str]() if allowed is None else allowed.readers
        shedding = shedding.without(tuple(o for o in shedding.owed if readers <= {*o["readers"]}))
        divisor = 1 if allowed is None else next_divisor(shedding, rows_per_ms, backlog)
        found[step] = replace(shedding, divisor=divisor)
    return found


def thinned(admitted: Splits, shedding: Mapping[str, Shedding]) -> dict[str, list[Split]]:
    """The splits with the share of rows that the epoch keeps of each."""
    return {
        step: [
            replace(s, keeps=shedding[step].divisor, keep_by=shedding[step].key)
            if step in shedding and shedding[step].divisor > 1
            else s
            for s in splits
        ]
        for step, splits in admitted.items()
    }


def owed_splits(
    shedding: Mapping[str, Shedding], sheddable: Mapping[str, SheddableSource], rows_max: int
) -> dict[str, list[Split]]:
    """Splits to read again, the oldest first, with about `rows_max` rows."""
    found: dict[str, list[Split]] = {}
    left = rows_max
    for step, mine in sorted(shedding.items()):
        allowed = sheddable.get(step)
        for owed in mine.owed if mine.recover and allowed is not None and allowed.recovers else ():
            if left <= 0:
                break
            found.setdefault(step, []).append(
                Split(
                    owed["what"],
                    int(owed["rows"]),
                    0,
                    str(owed["partition"]),
                    keeps=int(owed["keeps"]),
                    keep_by=tuple(owed["by"]),
                    recovers=True,
                )
            )
            left -= int(owed["rows"])
    return found


def recorded_after(
    shedding: Mapping[str, Shedding], sheddable: Mapping[str, SheddableSource], admitted: Splits
) -> dict[str, Any]:
    """What the manifest records after an epoch that read these splits."""
    found = {}
    for step, mine in shedding.items():
        splits = admitted.get(step, ())
        again = sum(s.recovers for s in splits)
        owed = tuple(
            {
                "what": dict(s.what),
                "rows": s.rows,
                "partition": s.partition,
                "keeps": s.keeps,
                "by": list(s.keep_by),
                "readers": sorted(sheddable[step].readers),
            }
            for s in splits
            if s.keeps > 1 and not s.recovers
        )
        found[step] = (mine.recovered(again) if again else mine.shed(owed)).to_json()
    return found


def without_owed(shedding: Mapping[str, Shedding], admitted: Splits) -> dict[str, Shedding]:
    """The settings after a recovery that failed: what these splits shed is lost."""
    return {
        step: mine.without(mine.owed[sum(s.recovers for s in admitted.get(step, ())) :])
        for step, mine in shedding.items()
    }


def record(split: Split) -> dict[str, Any]:
    """An admitted split as the manifest records it."""
    what = dict(split.what)
    if split.keeps > 1:
        what[SHED] = {"keeps": split.keeps, "by": list(split.keep_by), "recovers": split.recovers}
    return what


def unrecorded(what: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a split reads, and the fields of `Split` that say which rows it keeps.

    >>> unrecorded({"n": 1, SHED: {"keeps": 2, "by": [], "recovers": False}})
    ({'n': 1}, {'keeps': 2, 'keep_by': (), 'recovers': False})
    """
    plain = {key: value for key, value in what.items() if key != SHED}
    shed = what.get(SHED)
    if shed is None:
        return plain, {}
    return plain, {"keeps": shed["keeps"], "keep_by": tuple(shed["by"]), "recovers": shed["recovers"]}
