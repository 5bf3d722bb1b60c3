"""The least and the greatest value of each key, from an ordered index of values.

Law: an epoch costs the values it changes and as many stored ones as it retracts, not the size of the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond import delta as deltas
from millpond.identity import one_chunk, take
from millpond.kernels.grouping import placed, position_in
from millpond.ordering import Order, ranks
from millpond.state.tables.table import KeySet


def end_of(index: Any, keys: KeySet, changed: pa.Table, key: Sequence[str], last: bool) -> pa.Array:
    """The first (last) value of each key in an index of values, after adding this epoch's changes."""
    own = KeySet.of(changed, key)
    position = position_in(keys, own)
    low = changed.select([*key, "_value", *(["_w"] if "_w" in changed.column_names else [])])
    # Fetch enough state rows from the end that this epoch's retractions cannot remove all of them.
    weights = deltas.weights(changed)
    eaten = np.bincount(own.inverse[weights < 0], minlength=len(own)) if (weights < 0).any() else 0
    ask = np.ones(len(keys), np.int64)
    ask[position] += eaten
    stored = index.head(keys, ask, reverse=last)
    both = deltas.concat(
        [
            stored.table.select([*key, "_value", "_w"]),
            deltas.with_weights(low, weights).select([*key, "_value", "_w"]),
        ]
    )
    both = deltas.consolidate(both)
    both = both.filter(pc.greater(both.column("_w"), 0))
    group = position_in(keys, KeySet.of(both, key), both)
    values = one_chunk(both.column("_value"))
    rank = ranks(values, Order("_value", descending=last))
    order = np.lexsort((rank, group))
    ordered = group[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(ordered) else ordered
    return placed(take(values, order[first]), ordered[first], len(keys))
