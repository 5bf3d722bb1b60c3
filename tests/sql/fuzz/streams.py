"""Which rows of a stream are late: those behind the watermark that the epoch before has left.

The model knows nothing of ponds: the watermark is the newest time that was on time, less the delay.  A
stream gets rows once an epoch.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field, replace

from tests.sql.fuzz.cases import Change


@dataclass
class Streams:
    watermarks: dict[str, datetime.datetime] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Streams:
        return Streams(dict(self.watermarks), dict(self.late))

    def on_time(self, change: Change) -> tuple[Change, datetime.datetime | None]:
        """The change without its late rows, and the watermark after it."""
        table = change.table
        assert table.delay_h is not None
        place = list(table.columns).index("ts")
        bound = self.watermarks.get(table.name)
        kept = tuple(row for row in change.rows if bound is None or _time(row[place]) >= bound)
        self.late[table.name] = self.late.get(table.name, 0) + len(change.rows) - len(kept)
        if kept:
            newest = max(_time(row[place]) for row in kept) - datetime.timedelta(hours=table.delay_h)
            self.watermarks[table.name] = newest if bound is None else max(bound, newest)
        return replace(change, rows=kept), self.watermarks.get(table.name)


def _time(literal: str) -> datetime.datetime:
    found = re.search(r"'(.*?)'", literal)
    assert found is not None
    return datetime.datetime.fromisoformat(found[1])
