"""The changes of a view since an epoch long before the view was created."""

from __future__ import annotations

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.serve.reader import CHANGES_EPOCHS


def test_changes_begin_with_the_view() -> None:
    with millpond.open("memory://", engine="inline", retain_epochs=1000) as pond:
        pond.sql("CREATE TABLE t (a int)")
        for _ in range(CHANGES_EPOCHS + 2):
            pond.sql("INSERT INTO t VALUES (1); FLUSH")
        assert (pond.status.epoch or 0) > CHANGES_EPOCHS
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
        found = list(pond.changes("v", since=1))
        assert [row["n"] for delta in found for row in delta.table.to_pylist()] == [CHANGES_EPOCHS + 2]
        with pytest.raises(InvalidError, match="no view named 'w'"):
            list(pond.changes("w", since=1))
