"""Compares the rows that were found with those expected.

Rows are compared as a multiset, in the columns that the expectation names.  A column that no expected row
names is not compared, and a row that omits a column that others name expects NULL there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.testing.notation import ExpectedValue, Kind, show, show_row

Expected = Sequence[Mapping[str, ExpectedValue]]


@dataclass(frozen=True)
class Seen:
    """Found rows with the types of their columns; `what` names them in messages."""

    what: str
    kinds: Mapping[str, Kind]
    rows: Sequence[Mapping[str, Any]] = field(default=())

    def sorted(self) -> list[dict[str, Any]]:
        return [dict(row) for row in sorted(self.rows, key=self._rank)]

    def _rank(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_rank(row.get(name), kind) for name, kind in self.kinds.items())

    def shown(self, columns: Sequence[str] | None = None) -> list[dict[str, str]]:
        """The rows as text, with these columns or all."""
        names = [n for n in self.kinds if columns is None or n in columns]
        return [{n: self._text(row, n) for n in names} for row in self.sorted()]

    def _text(self, row: Mapping[str, Any], name: str) -> str:
        return ("+" if row[name] > 0 else "-") if name == "_w" else show(row.get(name), self.kinds[name])

    def columns(self, expected: Expected) -> list[str]:
        """The columns that the expectation names, in their own order; all if it names none."""
        named = {name for row in expected for name in row}
        return [n for n in self.kinds if n in named] if named else list(self.kinds)

    def difference(self, expected: Expected) -> str | None:
        """The differences, one line per row; None if there are none."""
        columns = self.columns(expected)
        left = self.shown(columns)
        as_expected: list[dict[str, str]] = []
        missing: list[Mapping[str, ExpectedValue]] = []
        whole = [{n: row.get(n, ExpectedValue("null")) for n in columns} for row in expected]
        # Exact rows first: a substring that matches many rows must not take the only match of another.
        for wanted in sorted(whole, key=lambda row: sum(cell.part for cell in row.values())):
            found = next((r for r in left if all(wanted[n].fits(r[n]) for n in columns)), None)
            if found is None:
                missing.append(wanted)
            else:
                left.remove(found)
                as_expected.append(found)
        if not missing and not left:
            return None
        count = "1 row" if len(self.rows) == 1 else f"{len(self.rows)} rows"
        lines = [f"{self.what} is not as expected: it has {count}, expected {len(expected)}"]
        lines += [f"  missing      {show_row(row)}" for row in missing]
        lines += [f"  unexpected   {show_row(row)}" for row in left]
        lines += [f"  as expected  {show_row(row)}" for row in as_expected]
        return "\n".join(lines)


def _rank(value: Any, kind: Kind) -> tuple[Any, ...]:
    """A sort key for values, NULL last; values without an order are sorted by their text."""
    if value is None:
        return (2,)
    if isinstance(value, float) and math.isnan(value):
        return (1,)
    if kind is None or pa.types.is_nested(kind):
        return (0, show(value, kind))
    return (0, value)
