"""Load shedding through the public API: estimates with bounds, recovery, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.sources.memory import MemorySource
from millpond.sources.source import Split

AGGREGATES = {"n": "count(*)", "total": "sum(x)", "squares": "sum(x * x)"}


def rows(count: int = 6_000) -> list[dict[str, int]]:
    return [{"k": n % 3, "x": n % 7} for n in range(count)]


def opened(folder: Path, source: MemorySource, **options: Any) -> Any:
    pond = millpond.open(folder, engine="inline", **options)
    pond.stream("bids", source).key_by("k").aggregate(**AGGREGATES).view("v")
    return pond


def behind(pond: Any, source: MemorySource, *, recover: bool, **options: Any) -> None:
    """Let the pond measure its pace, and fall behind a target that it cannot reach."""
    source.push(rows())
    pond.drain()
    pond.shed("bids", "1us", recover=recover, **options)
    for _ in range(3):
        source.push(rows())
    pond.drain()


def sums(pond: Any, column: str = "n") -> int:
    return sum(pond.read("v").column(column).to_pylist())


def test_counts_and_sums_are_scaled_and_bounded(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": int})
    with opened(tmp_path / "pond", source) as pond:
        behind(pond, source, recover=False, floor=0.25)
        (bill,) = pond.shedding().to_pylist()
        assert bill["view"] == "v" and bill["rate"] == 0.25 and bill["lowest_rate"] == 0.25
        assert bill["kept"] + bill["shed"] == 24_000 and bill["shed"] > 12_000
        found = pond.bounds("v", counts="n", sums={"total": "squares"})
        for row in found.to_pylist():
            assert row["n_low"] < row["n"] < row["n_high"]
            assert row["total_low"] < row["total"] < row["total_high"]
            assert row["total_avg_low"] < 3 < row["total_avg_high"]
        inside = [r["n_low"] <= 8_000 <= r["n_high"] for r in found.to_pylist()]
        assert sum(inside) >= 2
        assert pond.replay(pond.head().epoch).differences == {}
        assert "_shed" in str(pond.head().admitted)  # manifests list what was shed


def test_shed_rows_come_back_when_there_is_no_backlog(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": int})
    with opened(tmp_path / "pond", source) as pond:
        seen: list[int] = []
        pond.on_epoch(lambda m: seen.append(m.counts.get("shed/bids", 0)))
        behind(pond, source, recover=True)
        assert max(seen) > 0
        assert sums(pond) == 24_000 and pond.head().counts["shed/bids"] == 0
        assert [r["n"] for r in pond.read("v").sort_by("k").to_pylist()] == [8_000] * 3
        assert sums(pond, "total") == 4 * sum(n % 7 for n in range(6_000))
        (bill,) = pond.shedding().to_pylist()
        assert (bill["kept"], bill["shed"], bill["lowest_rate"]) == (24_000, 0, 1.0)


def test_what_is_owed_survives_a_restart_and_rescaling(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": int})
    with opened(tmp_path / "pond", source) as pond:
        behind(pond, source, recover=False)
        owed = pond.head().shedding["bids"]["owed"]
        assert owed and sums(pond) != 24_000
    with opened(tmp_path / "pond", source) as pond:
        pond.rescale(3)
        pond.drain()
        pond.shed("bids", "1h", recover=True)
        pond.drain()
        assert sums(pond) == 24_000


def test_rows_are_not_recovered_for_a_view_that_missed_the_others(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": int})
    with opened(tmp_path / "pond", source) as pond:
        behind(pond, source, recover=False)
        before = sums(pond)
        with pond.changing():
            pond.stream("bids", source).key_by("x").aggregate(n="count(*)").view("w")
        pond.shed("bids", "1h", recover=True)
        source.push(rows(70))
        pond.drain()
        assert sums(pond) == before + 70
        shedding = pond.head().shedding["bids"]
        assert shedding["owed"] == [] and shedding["lost"] > 0 and shedding["divisor_max"] > 1


def test_a_source_that_lost_its_input_leaves_estimates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = MemorySource({"k": int, "x": int})
    with opened(tmp_path / "pond", source) as pond:
        behind(pond, source, recover=False)
        before = sums(pond)
        plain = MemorySource.read

        def read(self: MemorySource, split: Split, columns: Any) -> Any:
            if split.recovers:
                raise InvalidError("these rows were deleted")
            return plain(self, split, columns)

        monkeypatch.setattr(MemorySource, "read", read)
        pond.shed("bids", "1h", recover=True)
        pond.drain()
        source.push(rows(70))
        pond.drain()
        assert sums(pond) == before + 70 and pond.head().shedding["bids"]["lost"] > 0


def test_a_count_of_all_rows(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": int})
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.stream("bids", source).key_by().aggregate(n="count(*)").view("v")
        behind(pond, source, recover=False)
        assert 20_000 < sums(pond) < 28_000 and sums(pond) != 24_000
        pond.shed("bids", "1h", recover=True)
        pond.drain()
        assert sums(pond) == 24_000


def test_kept_keys_are_exact(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": int})
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.stream("bids", source).key_by("x").aggregate(n="count(*)").view("v")
    source.push([{"k": 0, "x": 0}] * 2_000)
    pond.drain()
    pond.shed("bids", "1us", by="key", key="x", floor=0.25, recover=False)
    for _ in range(2):
        source.push([{"k": n, "x": n % 100} for n in range(1, 5_000)])
    pond.drain()
    counts = {r["x"]: r["n"] for r in pond.read("v").to_pylist() if r["x"]}
    assert 5 < len(counts) < 60 and set(counts.values()) <= {100}
    with pytest.raises(InvalidError, match="has no bounds"):
        pond.bounds("v", counts="n")
    pond.close()


@pytest.mark.parametrize(
    ("aggregates", "reason"),
    [
        ({"m": "max(x)"}, "max"),
        ({"m": "count(distinct x)"}, "count"),
        ({"m": "approx_count_distinct(x)"}, "approx_count_distinct"),
    ],
)
def test_what_has_no_bound_is_refused(tmp_path: Path, aggregates: dict[str, str], reason: str) -> None:
    source = MemorySource({"k": int, "x": int})
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.stream("bids", source).key_by("k").aggregate(**aggregates).view("v")
        pond.drain()
        with pytest.raises(InvalidError, match="cannot be shed") as refused:
            pond.shed("bids", "2s")
        assert reason in (refused.value.detail or "")


def test_exact_views_lose_nothing(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": int})
    with opened(tmp_path / "pond", source) as pond:
        source.push(rows())
        pond.drain()
        pond.shed("bids", "1us")
        with pond.changing():  # from now on the source must not be shed
            pond.stream("bids", source).key_by("x").aggregate(n="count(*)").view("exact", exact=True)
        for _ in range(3):
            source.push(rows())
        pond.drain()
        assert pond.head().counts.get("shed/bids", 0) == 0
        assert sum(pond.read("exact").column("n").to_pylist()) == sums(pond) == 24_000
        with pytest.raises(InvalidError, match="cannot be shed") as refused:
            pond.shed("bids", "2s")
        assert "'exact' is exact" in (refused.value.detail or "")


def test_sql(tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(
            f"create source bids (k int, x int) with (connector = 'files', path = '{folder}', format = 'json')"
        )
        pond.sql("create materialized view v as select k, count(*) as n from bids group by k")
        pond.sql("alter source bids set (shed = '2s', shed.floor = 0.1)")
        (row,) = pond.sql("show shedding").fetchall()
        assert row[1:6] == ("v", "row", "idle", 1.0, 1.0)
        pond.sql("alter source bids set (shed = 'off')")
        assert pond.sql("show shedding").fetchall() == []
        pond.sql("create materialized view e with (exact = true) as select sum(x) as s from bids")
        with pytest.raises(InvalidError, match="cannot be shed"):
            pond.sql("alter source bids set (shed = '2s')")
        with pytest.raises(InvalidError, match="no option"):
            pond.sql("create materialized view f with (exacts = true) as select 1 as one")


def test_nothing_changes_without_settings(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": int})
    with opened(tmp_path / "pond", source) as pond:
        source.push(rows())
        pond.drain()
        assert pond.head().shedding == {} and pond.shedding().num_rows == 0
        assert pond.bounds("v", counts="n").column("n_low").to_pylist() == [2_000.0] * 3
