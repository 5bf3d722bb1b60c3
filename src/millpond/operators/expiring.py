"""Expiring: what operators have in common whose state ends behind a bound.

Law: their tables are kept in buckets by the bound's column (`kept_by`), and every row of another table has
one in the first; buckets behind the limit are dropped by the epoch in which the limit passes them, with or
without rows (laws 1 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.operators.bounds import Bound
from millpond.operators.operator import Binding, Context


class Expiring:
    """For operators with a field `expires`; see `operators.operator.Wakes`."""

    expires: Bound | None

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        return self.expires is not None and self.expires.is_due(binding.tables[0].name, earliest, watermarks)

    def ends(self, binding: Binding) -> tuple[tuple[str, Bound], ...]:
        return () if self.expires is None else tuple((t.name, self.expires) for t in binding.tables)

    def ended(self, ctx: Context, binding: Binding) -> tuple[tuple[str, int], ...]:
        """What this epoch drops."""
        return () if self.expires is None else self.expires.drops(ctx.watermark, *binding.tables)
