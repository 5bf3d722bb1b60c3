"""The progress of a backfill that runs while the pond continues, as stored in every manifest.

Law 2: no reader sees any of it before the commit that adopts it.  Its tables are in the listing like all
others, so they are compacted, retained and dropped like them, but no program names them yet.  Law 1: when all
splits of a round are done, the tables contain what the new steps would contain at epoch `base` if they had
existed from the beginning.

The first round scans the tables as of epoch `base`; every later round reads what changed in them from epoch
`since` to `base`.  So a crash loses only the work since the last commit: one chunk.

For the new steps a round is one epoch, divided into chunks: lateness, lookups and stamps are those of one
epoch, and watermarks rise when all rows of the round have been read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# a scan, its number of hash ranges, and the estimated rows and bytes of each range
Cut = tuple[str, int, int, int]


@dataclass(frozen=True)
class BackfillProgress:
    entry: int  # the inbox entry that requested it
    catalog: str  # the catalog of the program with the new steps
    steps: tuple[str, ...]  # the new steps
    tables: tuple[str, ...]  # the tables of the new steps, and those that only the backfill needs
    base: int  # the epoch up to which this round computes the new steps
    cuts: tuple[Cut, ...]
    begun_us: int
    split_rows: int
    total: int  # an upper estimate of the rows of all rounds so far
    since: int | None = None  # the base of the previous round
    done: int = 0  # splits of this round that are done
    round: int = 0
    least: int = 0  # the minimum number of rows in a chunk: twice what an epoch of the previous round brought
    rows: int = 0
    chunks: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    now_us: int = 0  # the time of this round
    marks: Mapping[str, Any] = field(default_factory=dict)  # the watermarks of the new steps
    # what new watermarks have seen while time does not advance
    seen: Mapping[str, Any] = field(default_factory=dict)
    behind_us: int | None = 0  # how far time is behind the end of the first round; None: not started
    plan: str | None = None  # the file with the plan that tasks run

    @property
    def oldest(self) -> int:
        """The oldest epoch whose files it reads."""
        return self.base if self.since is None else self.since

    @property
    def splits(self) -> int:
        return sum(count for _, count, _, _ in self.cuts)

    def left(self) -> Iterator[tuple[str, int, Cut]]:
        """The remaining splits of this round: (scan, number of its hash range, cut)."""
        number = 0
        for cut in self.cuts:
            for index in range(cut[1]):
                if number >= self.done:
                    yield cut[0], index, cut
                number += 1

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BackfillProgress:
        known = {f.name for f in dataclasses.fields(BackfillProgress)}
        fields = {name: value for name, value in data.items() if name in known}
        return BackfillProgress(
            **{
                **fields,
                "steps": tuple(data["steps"]),
                "tables": tuple(data["tables"]),
                "cuts": tuple((step, count, rows, size) for step, count, rows, size in data["cuts"]),
            }
        )
