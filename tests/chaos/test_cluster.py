"""Faults on a standalone cluster of three hosts, with the pond on S3: every view equals batch in the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .cluster_run import run
from .standalone import standalone_cluster

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("MILLPOND_CHAOS_ROUNDS", "1"))


def test_nothing_that_breaks_on_a_cluster_changes_a_view(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as cluster:
        recovered = run(cluster, max(1, ROUNDS // 5), print)
    print(recovered)
    assert {"executor", "worker", "s3 outage", "driver"} <= recovered.keys()
