"""Load shedding by key, window and score: what is kept is exact, and what was shed comes back."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millpond
from millpond.engine.coordinator import shed_decisions
from millpond.errors import InvalidError
from millpond.kernels.sample_hashes import kept_keys, kept_windows
from millpond.sources.memory import MemorySource

BIDS = {"auction": int, "price": int}
AUCTIONS = {"auction": int, "region": str}


def auctions(n: int) -> list[dict[str, Any]]:
    return [{"auction": a, "region": f"r{a % 3}"} for a in range(n)]


def bids(n: int, seed: int, of: int = 200) -> list[dict[str, int]]:
    rng = random.Random(seed)
    return [{"auction": rng.randrange(of), "price": rng.randrange(100)} for _ in range(n)]


def kept(keys: list[int], divisor: int) -> set[int]:
    return {k for k, yes in zip(keys, kept_keys([pa.array(keys)], divisor), strict=True) if yes}


def joined(pond: Any, left: MemorySource, right: MemorySource) -> None:
    pond.stream("bids", left).join(pond.stream("auctions", right), on="auction").key_by(
        "region", "auction"
    ).aggregate(n="count(*)", total="sum(price)", most="max(price)").view("sold")


def test_a_join_samples_both_sides_by_key_and_recovers(tmp_path: Path) -> None:
    left, right = MemorySource(BIDS), MemorySource(AUCTIONS)
    pond = millpond.open(tmp_path / "pond", engine="inline")
    joined(pond, left, right)
    left.push(bids(3_000, 0))
    pond.drain()
    for name in ("bids", "auctions"):
        pond.shed(name, "1us", by="key", key="auction", floor=0.25)
    billed: list[dict[str, Any]] = []
    seen: list[Any] = []

    def look(manifest: Any) -> None:
        if manifest.shedding.get("bids", {}).get("divisor_max", 1) > 1 and not seen:
            billed.extend(pond.shedding().to_pylist())
            seen.append(pond.bounds("sold", counts="n", sums=["total"], over=["region"]).to_pylist())

    pond.on_epoch(look)
    every = bids(3_000, 0)
    right.push(auctions(200))
    for seed in (1, 2, 3):
        left.push(more := bids(3_000, seed))
        every += more
    pond.drain()
    assert {b["source"] for b in billed} == {"bids", "auctions"} and {b["view"] for b in billed} == {"sold"}
    assert {b["rate"] for b in billed} == {0.25}  # both sides keep the same keys
    assert seen and all(r["n_low"] <= r["n"] <= r["n_high"] and "total_avg_low" in r for r in seen[0])
    found = {r["auction"]: (r["n"], r["total"], r["most"]) for r in pond.read("sold").to_pylist()}
    prices: dict[int, list[int]] = {}
    for bid in every:
        prices.setdefault(bid["auction"], []).append(bid["price"])
    assert found == {a: (len(p), sum(p), max(p)) for a, p in prices.items()}
    assert all(b["owed"] == 0 and b["shed"] == 0 for b in pond.shedding().to_pylist())
    pond.close()


def test_kept_keys_of_a_join_are_exact_while_others_are_shed(tmp_path: Path) -> None:
    left, right = MemorySource(BIDS), MemorySource(AUCTIONS)
    pond = millpond.open(tmp_path / "pond", engine="inline")
    joined(pond, left, right)
    right.push(auctions(200))
    left.push(bids(3_000, 0))
    pond.drain()
    for name in ("bids", "auctions"):
        pond.shed(name, "1us", by="key", key="auction", floor=0.25)
    before = {r["auction"]: r["n"] for r in pond.read("sold").to_pylist()}
    states: list[dict[int, int]] = []

    def look(manifest: Any) -> None:
        if manifest.shedding["bids"]["owed"]:
            states.append({r["auction"]: r["n"] for r in pond.read("sold").to_pylist()})

    pond.on_epoch(look)
    more = bids(3_000, 1)
    left.push(more)
    pond.drain()
    late = Counter(b["auction"] for b in more)
    whole = kept(list(range(200)), 4)
    assert states
    for found in states[:1]:
        assert {k: found[k] for k in found if k in whole} == {
            k: before[k] + late.get(k, 0) for k in before if k in whole
        }
        # The others show what they were before they were shed.
        assert {k: found[k] for k in found if k not in whole} == {
            k: before[k] for k in before if k not in whole
        }
    pond.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_retraction_shares_the_fate_of_its_row(tmp_path: Path, seed: int) -> None:
    """Changes of rows that can be retracted, shed at random times: no count is ever wrong for a kept key."""
    rng = random.Random(seed)
    source = MemorySource({"k": int, "x": int}, append_only=False)
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.stream("rows", source).key_by("k").aggregate(n="count(*)", s="sum(x)", m="max(x)").view("v")
    live: list[tuple[int, int]] = []

    def push(count: int) -> None:
        changes = []
        for _ in range(count):
            if live and rng.random() < 0.4:
                k, x = live.pop(rng.randrange(len(live)))
                changes.append({"k": k, "x": x, "_w": -1})
            else:
                live.append((rng.randrange(40), rng.randrange(1_000)))
                changes.append({"k": live[-1][0], "x": live[-1][1], "_w": 1})
        source.push(changes)

    def truth() -> dict[int, tuple[int, int, int]]:
        found: dict[int, list[int]] = {}
        for k, x in live:
            found.setdefault(k, []).append(x)
        return {k: (len(x), sum(x), max(x)) for k, x in found.items()}

    def shown() -> dict[int, tuple[int, int, int]]:
        return {r["k"]: (r["n"], r["s"], r["m"]) for r in pond.read("v").to_pylist()}

    push(2_000)
    pond.drain()
    pond.shed("rows", "1us", by="key", key="k", floor=0.2)
    checked: list[int] = []

    def look(manifest: Any) -> None:
        divisor = manifest.shedding["rows"]["divisor_max"]
        if divisor > 1 and source_read(manifest):
            whole, now, true = kept(list(range(40)), divisor), shown(), truth()
            assert {k: v for k, v in now.items() if k in whole} == {
                k: v for k, v in true.items() if k in whole
            }
            assert all(n > 0 for n, _, _ in now.values())
            checked.append(divisor)

    def source_read(manifest: Any) -> bool:
        return bool(manifest.positions["rows"] == len(source.items))

    pond.on_epoch(look)
    for _ in range(3):
        push(1_500)
        pond.drain()
        assert shown() == truth()  # there was time to recover
    pond.shed("rows", "1h", by="key", key="k", floor=0.2)
    push(500)
    pond.drain()
    assert shown() == truth() and checked
    pond.close()


def test_rows_that_are_owed_are_read_beside_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        shed_decisions, "next_divisor", lambda _s, _pace, backlog, _max: 5 if backlog > 999 else 1
    )
    source = MemorySource({"k": int, "x": int}, append_only=False)
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.stream("rows", source).key_by("k").aggregate(n="count(*)").view("v")
    source.push([{"k": n % 40, "x": n} for n in range(400)])
    pond.drain()
    pond.shed("rows", "1s", by="key", key="k")
    mixed: list[tuple[int, int]] = []

    def look(manifest: Any) -> None:
        read = [what.get("_shed") for what in manifest.admitted.get("rows", ())]
        mixed.append((sum(bool(one and one["recovers"]) for one in read), sum(one is None for one in read)))
        if len(source.items) == 2:
            assert manifest.shedding["rows"]["owed"]
            source.push([{"k": n % 40, "x": n, "_w": -1 if n < 200 else 1} for n in range(400)])

    pond.on_epoch(look)
    source.push([{"k": n % 40, "x": n} for n in range(2_000)])
    pond.drain()
    assert [r["n"] for r in pond.read("v").to_pylist()] == [60] * 40
    assert mixed == [(0, 0), (1, 1)]
    assert pond.head().shedding["rows"]["owed"] == [] and pond.head().counts["shed/rows"] == 0
    pond.close()


def test_process_steps_of_kept_keys_see_every_row(tmp_path: Path) -> None:
    """By key anything may be computed within a key: here a top-n."""
    source = MemorySource(BIDS)
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.stream("bids", source).key_by("auction").top_n(2, by="price desc").view("best")
    source.push(bids(2_000, 0, 50))
    pond.drain()
    pond.shed("bids", "1us", by="key", key="auction")
    source.push(bids(2_000, 1, 50))
    pond.drain()
    every: dict[int, list[int]] = {}
    for bid in [*bids(2_000, 0, 50), *bids(2_000, 1, 50)]:
        every.setdefault(bid["auction"], []).append(bid["price"])
    found: dict[int, list[int]] = {}
    for row in pond.read("best").to_pylist():
        found.setdefault(row["auction"], []).append(row["price"])
    assert {k: sorted(v) for k, v in found.items()} == {k: sorted(v)[-2:] for k, v in every.items()}
    pond.close()


# -- windows ----------------------------------------------------------------------------------


def test_kept_windows_are_exact(tmp_path: Path) -> None:
    source = MemorySource({"at": datetime.datetime, "k": int})
    start = datetime.datetime(2024, 1, 1)
    pond = millpond.open(tmp_path / "pond", engine="inline")
    stream = pond.stream("hits", source, event_time="at", delay="0s").tumble("10s")
    stream.key_by("window_start", "k").aggregate(n="count(*)", most="max(at)").view("v")

    def push(first: int, count: int) -> None:
        """A hundred rows a second."""
        source.push(
            [
                {"at": start + datetime.timedelta(milliseconds=10 * n), "k": n % 2}
                for n in range(100 * first, 100 * (first + count))
            ]
        )

    push(0, 25)
    pond.drain()
    pond.shed("hits", "1us", by="window", floor=0.25)
    for first in range(25, 625, 50):
        push(first, 50)
        pond.drain()
    push(625, 1)
    pond.drain()
    counts = pond.head().counts
    assert counts["shed/hits"] > 10_000 and counts["shed/hits"] + counts["rows/hits"] == 62_600
    fates = pond.head().shedding["hits"]["fates"]
    assert fates and all((since // 1_000_000) % 10 == 0 for since, _ in fates)
    begin = int(start.replace(tzinfo=datetime.UTC).timestamp() * 1e6)
    starts = np.array([begin + 10_000_000 * n for n in range(63)])
    whole = kept_windows(starts, (10_000_000, 0), [(s, d) for s, d in fates])
    shown = {
        int(r["window_start"].replace(tzinfo=datetime.UTC).timestamp() * 1e6): 0
        for r in pond.read("v").to_pylist()
    }
    for r in pond.read("v").to_pylist():
        shown[int(r["window_start"].replace(tzinfo=datetime.UTC).timestamp() * 1e6)] += r["n"]
    assert set(shown) == {int(s) for s, yes in zip(starts, whole, strict=True) if yes}
    assert {n for s, n in shown.items() if s != starts[-1]} == {1_000}  # every window that is there is whole
    (bill,) = pond.shedding().to_pylist()
    assert bill["by"] == "window" and not bill["recovers"]
    assert pond.replay(pond.head().epoch).same
    pond.close()


# -- scores -----------------------------------------------------------------------------------


def test_rows_with_a_high_score_are_kept(tmp_path: Path) -> None:
    source = MemorySource({"k": int, "x": float})
    rng = np.random.default_rng(5)
    rows = [{"k": n % 2, "x": float(x)} for n, x in enumerate(rng.pareto(1.5, 8_000))]
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.stream("hits", source).key_by("k").aggregate(n="count(*)", s="sum(x)", q="sum(x * x)").view("v")
    source.push(rows)
    pond.drain()
    pond.shed("hits", "1us", score="x / 2", floor=0.1, recover=False)
    source.push(rows)
    pond.drain()
    head = pond.head()
    assert 4_000 < head.counts["shed/hits"] < 7_800
    largest = sorted(r["x"] for r in rows)[-50:]
    got = {r["k"]: r for r in pond.bounds("v", counts="n", sums={"s": "q"}).to_pylist()}
    for k in (0, 1):
        true = 2 * sum(r["x"] for r in rows if r["k"] == k)
        assert got[k]["s_low"] < true < got[k]["s_high"]
        assert abs(got[k]["s"] - true) / true < 0.1  # the rows that matter were all kept
        assert got[k]["n_low"] < 8_000 < got[k]["n_high"]
    assert min(largest) / 2 > 10  # so that the largest were kept with certainty
    pond.shed("hits", "1h", score="x / 2", floor=0.1)
    pond.drain()
    assert sorted(pond.read("v").column("n").to_pylist()) == [8_000, 8_000]
    pond.close()


@pytest.mark.parametrize(
    ("score", "message"), [("nothing + 1", "nothing"), ("random()", "random"), ("k +", "score")]
)
def test_a_score_that_cannot_be_computed_is_refused(tmp_path: Path, score: str, message: str) -> None:
    source = MemorySource({"k": int, "x": float})
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.stream("hits", source).key_by("k").aggregate(n="count(*)").view("v")
        pond.drain()
        with pytest.raises(InvalidError, match=message):
            pond.shed("hits", "1s", score=score)


# -- error bounds -----------------------------------------------------------------------------


def test_an_error_bound_sets_the_floor(tmp_path: Path) -> None:
    source = MemorySource({"k": int})
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.stream("hits", source).key_by("k").aggregate(n="count(*)").view("v", error_bound=0.05)
    rows = [{"k": n % 2} for n in range(10_000)]
    source.push(rows)
    pond.drain()
    pond.shed("hits", "1us", floor=0.01, recover=False)
    for _ in range(4):
        source.push(rows)
        pond.drain()
    shedding = pond.head().shedding["hits"]
    # Two groups of at most 25,000 rows: m - 1 <= 0.05² · 25,000 / 1.96²
    assert 1 < shedding["divisor_max"] <= 17
    for r in pond.bounds("v", counts="n").to_pylist():
        assert (r["n_high"] - r["n_low"]) / 2 / r["n"] < 0.05 and abs(r["n"] - 25_000) < 2_500
    assert pond.shedding().to_pylist()[0]["error_bound"] == 0.05
    pond.close()


def test_an_error_bound_in_sql(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(
            f"create source hits (k int) with (connector = 'files', path = '{tmp_path / 'in'}', format = 'json')"
        )
        pond.sql(
            "create materialized view v error bound 2.5 % as select k, count(*) as n from hits group by k"
        )
        pond.sql("alter source hits set (shed = '2s')")
        assert pond.sql("show shedding").fetchall()[0][-1] == 0.025
        for wrong in ("error bound 0 %", "error bound 120 %", "error bound x %", "error bound 1"):
            with pytest.raises(InvalidError):
                pond.sql(f"create materialized view w {wrong} as select count(*) as n from hits")


# -- refusals ---------------------------------------------------------------------------------


def test_what_a_key_or_window_cannot_do_is_refused(tmp_path: Path) -> None:
    left, right = MemorySource(BIDS), MemorySource(AUCTIONS)
    hits = MemorySource({"at": datetime.datetime, "k": int})
    pond = millpond.open(tmp_path / "pond", engine="inline")
    joined(pond, left, right)
    pond.stream("bids", left).key_by().aggregate(n="count(*)").view("all_bids")
    pond.stream("auctions", right).key_by("region").aggregate(n="max(auction)").view("regions")
    timed = pond.stream("hits", hits, event_time="at")
    timed.hop("10s", "5s").key_by("window_start").aggregate(n="count(*)").view("hopping")
    pond.drain()
    for source, options, reason in (
        ("bids", {"by": "key", "key": "auction"}, "different keys"),
        ("bids", {"by": "row"}, "Join"),
        ("auctions", {"by": "key", "key": "auction"}, "different keys"),
        ("hits", {"by": "window"}, "overlap"),
        ("bids", {"by": "window"}, "no column with a time"),
    ):
        with pytest.raises(InvalidError, match="cannot be shed") as refused:
            pond.shed(source, "1s", **options)
        assert reason in (refused.value.detail or ""), refused.value.detail
    for options in (
        {"by": "key"},
        {"by": "score"},
        {"by": "rows"},
        {"by": "row", "key": "auction"},
        {"by": "key", "key": "nothing"},
    ):
        with pytest.raises(InvalidError):
            pond.shed("auctions", "1s", **options)
    pond.close()


def test_sources_of_a_join_with_different_keys_are_refused(tmp_path: Path) -> None:
    left, right = MemorySource({"a": int, "b": int}), MemorySource({"a": int, "b": int})
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.stream("left", left).join(pond.stream("right", right), on=["a", "b"]).key_by("a", "b").aggregate(
        n="count(*)"
    ).view("v")
    pond.drain()
    pond.shed("left", "1s", by="key", key="a")
    with pytest.raises(InvalidError, match="cannot be shed"):
        pond.shed("right", "1s", by="key", key="b")
    pond.shed("right", "1s", by="key", key="a")
    assert pond.shedding().num_rows == 2
    pond.close()
