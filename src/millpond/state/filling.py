"""A fill: views that are being made while the pond goes on, as every manifest tells of it.

Law 2: nothing of it is seen before the commit that adopts it.  Its tables are in
the listing like all others, so that they are merged, kept and dropped with it, but
no program names them yet.  Law 1: when all splits of a round are in, they are what
the new steps would hold at epoch `base`, had they been there from the beginning.

The first round reads the tables of epoch `base` whole; every further one reads what
changed in them from epoch `since` to `base`.  A crash therefore loses what was done
since the last commit, one chunk, and nothing else.

For the new steps a round is one epoch, cut into chunks: its rows are late, looked up and stamped as those of
one epoch are, and watermarks rise when all of them are in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Cut = tuple[str, int, int, int]  # a scan: into how many hash ranges it is cut, rows and bytes of each, about


@dataclass(frozen=True)
class Fill:
    entry: int  # of the inbox, that asked for it
    catalog: str  # of the program that has the new steps
    steps: tuple[str, ...]  # that are new
    tables: tuple[str, ...]  # of the new steps, and those that only the fill needs
    base: int  # the epoch to which this round brings them
    cuts: tuple[Cut, ...]
    begun_us: int
    split_rows: int
    total: int  # rows of all rounds so far, an estimate from above
    since: int | None = None  # the epoch of the round before
    done: int = 0  # splits of this round that are in
    round: int = 0
    least: int = (
        0  # rows that a chunk of it takes in at least: twice what an epoch of the round before brought
    )
    rows: int = 0
    chunks: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    now_us: int = 0  # the time of this round
    marks: Mapping[str, Any] = field(default_factory=dict)  # how far watermarks have come for the new steps
    seen: Mapping[str, Any] = field(default_factory=dict)  # what new watermarks saw, while time stands still
    behind_us: int | None = 0  # how far time is behind the end of the first round; None: it has not begun
    plan: str | None = None  # the file that tells tasks what to run

    @property
    def oldest(self) -> int:
        """The oldest epoch whose files it reads."""
        return self.base if self.since is None else self.since

    @property
    def splits(self) -> int:
        return sum(count for _, count, _, _ in self.cuts)

    def left(self) -> Iterator[tuple[str, int, Cut]]:
        """The splits of this round that are to come: (scan, number of its hash range, how it is cut)."""
        number = 0
        for cut in self.cuts:
            for place in range(cut[1]):
                if number >= self.done:
                    yield cut[0], place, cut
                number += 1

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Fill:
        known = {f.name for f in dataclasses.fields(Fill)}
        given = {name: value for name, value in data.items() if name in known}
        return Fill(
            **{
                **given,
                "steps": tuple(data["steps"]),
                "tables": tuple(data["tables"]),
                "cuts": tuple((step, count, rows, size) for step, count, rows, size in data["cuts"]),
            }
        )
