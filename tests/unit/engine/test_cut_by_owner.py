"""Rows go to the task that owns their hash, in the order in which they were."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from millpond import hashing
from millpond.engine.task.partitioning import cut_by_owner
from millpond.tuning import DEAL_CHUNK_ROWS_MIN


@pytest.mark.parametrize("targets", [1, 2, 7])
@pytest.mark.parametrize("chunks", [[0], [5], [DEAL_CHUNK_ROWS_MIN * 2, 0, DEAL_CHUNK_ROWS_MIN], [3, 1, 4]])
@pytest.mark.parametrize("ordered", [False, True])
def test_every_row_goes_to_its_owner(targets: int, chunks: list[int], ordered: bool) -> None:
    count = sum(chunks)
    hashes = np.random.default_rng(count).integers(0, 2**64, count, np.uint64)
    if ordered:
        hashes.sort()
    ends = np.cumsum([0, *chunks]).tolist()
    names = pa.chunked_array(
        [pa.array([str(n) for n in range(a, b)], pa.string()) for a, b in pairwise(ends)]
    )
    delta = pa.table({"name": names, "n": np.arange(count), "_h": pa.array(hashes)})
    found = dict(cut_by_owner(delta, targets))
    owners = hashing.owners(hashes, targets)
    assert set(found) == set(owners.tolist())
    for target, piece in found.items():
        rows = np.flatnonzero(owners == target)
        assert piece.schema == delta.schema
        assert piece["n"].to_pylist() == rows.tolist()
        assert piece["name"].to_pylist() == [str(n) for n in rows]
        assert (piece["_h"].to_numpy() == hashes[rows]).all()
