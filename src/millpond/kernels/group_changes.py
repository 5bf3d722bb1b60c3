"""What changes in the visible rows and the error rows of groups that an epoch touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import delta as deltas
from millpond.delta import HASH
from millpond.identity import equal_rows, one_chunk, take
from millpond.kernels.expression_kernel import error_rows, join_errors
from millpond.state.tables.table import KeySet

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Failing = tuple[Bools, Bools, str]  # which groups failed before, which fail now, why


def unreplaced(rows: pa.Table, fresh: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows whose key is not among the fresh ones, which are sorted by hash."""
    if not fresh.num_rows:
        return rows
    hashes, mine = (one_chunk(table.column(HASH)).to_numpy() for table in (fresh, rows))
    positions = np.minimum(np.searchsorted(hashes, mine), len(hashes) - 1)
    met = hashes[positions] == mine
    which = np.flatnonzero(met)
    columns = [[one_chunk(table.column(k)) for k in key] for table in (rows, fresh)]
    same = equal_rows(
        [take(column, which) for column in columns[0]],
        [take(column, positions[which]) for column in columns[1]],
        len(which),
    )
    if not same.all():  # two keys share a hash: decide by the key set
        keys = KeySet.of(pa.concat_tables([fresh.select(list(key)), rows.select(list(key))]), key)
        met = np.isin(keys.inverse[fresh.num_rows :], keys.inverse[: fresh.num_rows])
    return rows.filter(pa.array(~met))


def visible_change(
    names: Sequence[str], old: pa.Table, found: Bools, new: pa.Table, weight: Ints
) -> pa.Table:
    """-old +new for the groups whose visible row changed."""
    names = list(names)
    same = equal_rows(
        [one_chunk(old.column(n)) for n in names], [one_chunk(new.column(n)) for n in names], new.num_rows
    )
    moved = ~(same & found & (weight > 0))
    gone = old.select(names).filter(pa.array(found & moved))
    come = new.select(names).filter(pa.array((weight > 0) & moved))
    return pa.concat_tables(
        [
            gone.append_column("_w", pa.array(np.full(gone.num_rows, -1, np.int64))),
            come.append_column("_w", pa.array(np.ones(come.num_rows, np.int64))),
        ]
    )


def group_errors(rows: pa.Table, key: Sequence[str], errors: Sequence[Failing]) -> pa.Table | None:
    """An error row for each group that began to fail, and its retraction when the group recovers."""
    found = None
    for was, fails_now, reason in errors:
        for mask, weight in ((was & ~fails_now, -1), (fails_now & ~was, 1)):
            groups = rows.select([*key, "_h"]).filter(pa.array(mask))
            if groups.num_rows:
                made = error_rows(groups, [reason] * groups.num_rows)
                found = join_errors(found, made if weight > 0 else deltas.negate(made))
    return found
