"""What was there is there still: older epochs are read as they were, changes lead from one to the next (laws 2 and 6)."""

from __future__ import annotations

import collections
import itertools
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
    columns: dict[str, list[str]] = field(default_factory=dict)


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


def check_changes(
    pond: millpond.Pond, shown: Sequence[Shown], compared: collections.Counter[str]
) -> dict[str, str]:
    """By view: where what is told to those who subscribe does not lead from what was shown to what was shown next."""
    wrong = {}
    for name in shown[-1].rows:
        seen = [one for one in shown if name in one.rows]
        if any(one.columns[name] != shown[-1].columns[name] for one in seen):
            continue  # another view had the name, and other columns: then it begins anew
        told = pond.sql(f"SUBSCRIBE {name} SINCE EPOCH {seen[0].epoch}").fetchall()
        for before, after in itertools.pairwise(seen):
            led = collections.Counter(before.rows[name])
            for epoch, weight, *row in told:
                if before.epoch < epoch <= after.epoch:
                    led.update(dict.fromkeys(as_rows([tuple(row)]), weight))
            compared["subscribed"] += 1
            if {row: n for row, n in led.items() if n} != after.rows[name]:
                wrong[name] = f"from epoch {before.epoch} to {after.epoch} was told {told[:5]}"
    return wrong


def check_lookups(pond: millpond.Pond, shown: Shown, compared: collections.Counter[str]) -> dict[str, str]:
    """By view: where rows that are asked for by a value are not those that have it."""
    wrong = {}
    for name in shown.rows:
        found = pond.sql(f"SELECT * FROM {name}")
        rows = found.fetchall()
        for place, column in enumerate(found.columns):
            if not rows or not isinstance(value := rows[0][place], int | str):
                continue
            given = as_rows(pond.sql(f'SELECT * FROM {name} WHERE "{column}" = ?', params=[value]).fetchall())
            compared["looked up"] += 1
            if given != (wanted := as_rows([row for row in rows if row[place] == value])):
                wrong[name] = f"where {column} = {value!r}: {_difference(wanted, given)}"
    return wrong


def as_rows(found: Sequence[tuple[Any, ...]]) -> Rows:
    return plain(tuple(instant(v) for v in row) for row in found)


def _difference(wanted: Rows, given: Rows) -> str:
    return f"missing {list((wanted - given).items())[:3]}, too many {list((given - wanted).items())[:3]}"
