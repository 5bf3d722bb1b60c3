"""What was there is there still: older epochs are read as they were, and changes lead from one to the next (law 6)."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import millpond
from tests.sql.fuzz.engines import instant
from tests.sql.world import Rows, plain


@dataclass
class Shown:
    """What views held after an epoch, under their names of then."""

    epoch: int
    rows: dict[str, Rows] = field(default_factory=dict)


def check_past(
    pond: millpond.Pond, shown: Sequence[Shown], compared: collections.Counter[str]
) -> dict[str, str]:
    """By view: what is another past than the one that was."""
    wrong = {}
    for one in shown[:-1]:
        for name, rows in one.rows.items():
            found = pond.sql(f"SELECT * FROM {name} AS OF EPOCH {one.epoch}").fetchall()
            compared["past"] += 1
            if (now := as_rows(found)) != rows:
                wrong[name] = f"as of epoch {one.epoch}: {_difference(rows, now)}"
    return wrong


def as_rows(found: Sequence[tuple[Any, ...]]) -> Rows:
    return plain(tuple(instant(v) for v in row) for row in found)


def _difference(wanted: Rows, given: Rows) -> str:
    return f"missing {list((wanted - given).items())[:3]}, too many {list((given - wanted).items())[:3]}"
