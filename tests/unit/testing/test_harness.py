"""The harness: what is fed, time under control, what can be looked at, and how it fails."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millpond
from millpond import ListState, Pond, Process, Timer, ValueState
from millpond.errors import InvalidError
from millpond.testing import Harness
from tests.unit.testing.pipelines import TRADES, Trade, pipeline


def trades(**options: Any) -> Harness:
    return Harness(pipeline, {"trades": TRADES}, **options)


def at(seconds: float) -> dt.datetime:
    return dt.datetime(2024, 1, 1) + dt.timedelta(seconds=seconds)


def utc(seconds: float) -> dt.datetime:
    return at(seconds).replace(tzinfo=dt.UTC)


XS = ListState(int)
N = ValueState(int, default=0)


def counting(pond: Pond, words: Any) -> None:
    pond.stream("words", words).key_by("word").aggregate(n="count(*)", total="sum(x)").view("counts")


# ---------------------------------------------------------------- feeding


@dataclass
class Word:
    word: str
    x: int


def test_rows_are_dicts_dataclasses_or_columns_and_what_is_left_out_is_null() -> None:
    with Harness(counting, {"words": Word}) as h:
        h.feed("words", {"word": "a", "x": 1}, Word("a", 2))
        h.feed("words", word="b")
        assert h.epoch() == 1
        assert h.view("counts") == [{"word": "a", "n": 2, "total": 3}, {"word": "b", "n": 1, "total": None}]


def test_rows_that_do_not_fit_are_refused_when_they_are_fed() -> None:
    with trades() as h:
        with pytest.raises(InvalidError, match="'trades' has no column 'usr'") as unknown:
            h.feed("trades", usr="ann")
        assert unknown.value.hint == "did you mean 'user'?"
        with pytest.raises(InvalidError, match="'much' does not fit column 'amount' of 'trades'"):
            h.feed("trades", amount="much")
        with pytest.raises(InvalidError, match="7 does not fit column 'user'"):
            h.feed("trades", user=7)
        with pytest.raises(InvalidError, match="no source or table named 'trade'") as source:
            h.feed("trade", user="ann")
        assert source.value.hint == "did you mean 'trades'?"
        with pytest.raises(InvalidError, match="no row is given"):
            h.feed("trades")
        with pytest.raises(InvalidError, match="a row is a dict"):
            h.feed("trades", 7)
        assert h.epoch() == 0  # nothing was taken


def test_nothing_runs_but_in_an_epoch() -> None:
    with trades() as h:
        h.feed("trades", ts="00:00:01", user="ann", shop="tea", amount=1.0)
        h.epoch()
        before = h.view("out"), h.timers("watch")
        h.feed("trades", ts="00:00:02", user="ann", shop="tea", amount=2.0)
        h.feed("limits", shop="tea", limit=1.0)
        h.watermark("trades", "00:01:00")
        h.advance("1h")
        h.rescale(3)
        h.compact()
        h.crash()
        assert (h.view("out"), h.timers("watch")) == before
        h.epoch()
        assert [r["what"] for r in h.changes("out")] == ["check", "silent", "trade", "trade"]
        assert h.view("alerts") == [{"user": "ann", "amount": 2.0}]


def test_rows_can_be_taken_back_where_the_source_allows_it() -> None:
    with Harness(counting, {"words": Word}, retracts=["words"]) as h:
        h.feed("words", {"word": "a", "x": 1}, {"word": "a", "x": 2}, {"word": "b", "x": 5})
        h.epoch()
        h.changes("counts")
        h.retract("words", word="a", x=1)
        h.feed("words", {"word": "b", "x": 5, "_w": -1})
        h.epoch()
        assert h.changes("counts") == [
            {"_w": -1, "word": "a", "n": 2, "total": 3},
            {"_w": -1, "word": "b", "n": 1, "total": 5},
            {"_w": 1, "word": "a", "n": 1, "total": 2},
        ]
        assert h.changes("counts") == []
    with Harness(counting, {"words": Word}) as h:
        with pytest.raises(InvalidError, match="rows of 'words' cannot be taken back"):
            h.retract("words", word="a", x=1)
        with pytest.raises(InvalidError, match="cannot be taken back"):
            h.feed("words", {"word": "a", "_w": -1})
    with pytest.raises(InvalidError, match="no source named 'wrds'"):
        Harness(counting, {"words": Word}, retracts=["wrds"])


def test_a_pipeline_that_takes_other_sources_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"counting cannot be called with \(pond, trades\)") as error:
        Harness(counting, {"trades": Word})
    assert "missing a required argument: 'words'" in str(error.value.detail)


# ---------------------------------------------------------------- looking


def test_states_are_shown_as_the_code_finds_them() -> None:
    with trades(parallelism=3) as h:
        h.feed("limits", shop="tea", limit=9.0)
        for second, shop, amount in ((1, "tea", 1.0), (2, "books", 7.0), (3, "tea", 4.0), (4, "tea", 2.0)):
            h.feed("trades", ts=at(second), user="ann", shop=shop, amount=amount)
        h.feed("trades", ts=at(1), user="bob", shop="tea", amount=3.0)
        h.epoch()
        assert h.state("watch", "total") == {"ann": 14.0, "bob": 3.0}
        assert h.state("watch", "total", "ann") == 14.0
        assert h.state("watch", "total", "nobody") == 0.0  # the default
        assert h.state("watch", "recent", "ann") == [
            Trade("books", 7.0),
            Trade("tea", 4.0),
            Trade("tea", 2.0),
        ]
        assert h.state("watch", "recent", "nobody") == []
        assert h.state("watch", "shops", {"user": "ann"}) == {"tea": 3, "books": 1}
        assert h.state("watch", "shops", "nobody") == {}
        assert h.state("watch", "notes", "ann") == ["tea", "books", "tea", "tea"]
        assert h.state("watch", "notes", "nobody") == []
        assert h.state("watch", "largest") == {"ann": 7.0, "bob": 3.0}
        assert h.state("watch", "mean", "ann") == 3.5
        assert h.state("watch", "mean", "nobody") is None
        assert h.state("watch", "limits") == {"tea": 9.0}
        with pytest.raises(InvalidError, match="belongs to no key"):
            h.state("watch", "limits", "tea")
        with pytest.raises(InvalidError, match="no state 'totals'") as state:
            h.state("watch", "totals")
        assert state.value.hint == "did you mean 'total'?"
        with pytest.raises(InvalidError, match="no process step named 'out'"):
            h.state("out", "total")
        with pytest.raises(InvalidError, match="no key of step 'watch'"):
            h.state("watch", "total", ("ann", "tea"))


def test_keys_of_more_columns_are_tuples_and_null_is_a_key() -> None:
    def by_two(pond: Pond, words: Any) -> None:
        def count(row: Any, n: Any = ValueState(int, default=0)) -> dict[str, Any]:
            n.value += 1
            return {"n": n.value}

        pond.stream("words", words).key_by("word", "x").process(count, {"n": int}, id="count").view("out")

    with Harness(by_two, {"words": Word}) as h:
        h.feed("words", Word("a", 1), Word("a", 1), Word("a", 2), {"word": None, "x": 2})
        h.epoch()
        assert h.state("count", "n") == {("a", 1): 2, ("a", 2): 1, (None, 2): 1}
        assert h.state("count", "n", ("a", 1)) == 2
        assert h.state("count", "n", {"x": 2, "word": None}) == 1
        assert h.state("count", "n", ("b", 1)) == 0
        with pytest.raises(InvalidError, match="has no timers"):
            h.timers("count")


def test_the_state_of_a_batch_function_is_shown_too() -> None:
    def batches(pond: Pond, words: Any) -> None:
        def tally(batch: Any, n: Any = N) -> pa.Table:
            sizes = np.diff(batch.starts)
            n.values = pa.array(n.values.to_numpy() + sizes)
            return pa.table({"word": batch.keys.column("word"), "n": n.values})

        keyed = pond.stream("words", words).key_by("word")
        keyed.process_batch(tally, {"word": str, "n": int}, id="tally").view("out")

    with Harness(batches, {"words": Word}) as h:
        for _ in range(2):
            h.feed("words", Word("a", 1), Word("a", 1), Word("b", 1))
            h.crash(midway=True)
            h.epoch()
        assert h.state("tally", "n") == {"a": 4, "b": 2}
        assert h.state("tally", "n", "c") == 0
        with pytest.raises(InvalidError, match="has no timers"):
            h.timers("tally")


def test_timers_of_both_clocks_fire_when_their_time_comes() -> None:
    with trades() as h:
        h.feed("trades", ts="00:00:01", user="ann", shop="tea", amount=1.0)
        h.epoch()
        assert h.timers("watch") == {"ann": h.timers("watch", "ann")}
        assert h.timers("watch", "ann") == [("check", utc(2), "processing"), ("silent", at(6), "event")]
        assert isinstance(h.timers("watch", "ann")[0], Timer)
        assert h.timers("watch", "nobody") == []
        h.changes("out")
        h.watermark("trades", "00:00:05.999999")
        h.advance(1.999)
        h.epoch()
        assert h.changes("out") == []
        h.watermark("trades", "00:00:06")
        h.epoch()
        assert [r["what"] for r in h.changes("out")] == ["silent"]
        h.at("00:00:02")
        h.epoch()
        assert [r["what"] for r in h.changes("out")] == ["check"]
        assert h.timers("watch") == {}
        assert h.now == utc(2)


def test_lives_end_by_either_clock() -> None:
    with trades() as h:
        h.feed("trades", ts="00:00:01", user="ann", shop="tea", amount=1.0)
        h.epoch()
        assert h.state("watch", "lately", "ann") == 1  # 10 s from the row's time
        assert h.state("watch", "visited", "ann") == {"tea": 1}  # a minute of the clock
        h.watermark("trades", "00:00:10.9")
        h.advance("59s")
        h.epoch()
        assert h.state("watch", "lately", "ann") == 1
        assert h.state("watch", "visited", "ann") == {"tea": 1}
        h.watermark("trades", "00:00:11")
        h.epoch()
        assert h.state("watch", "lately") == {} and h.state("watch", "lately", "ann") == 0
        assert h.state("watch", "visited", "ann") == {"tea": 1}
        h.advance("1s")
        h.epoch()
        assert h.state("watch", "visited") == {}
        h.feed("trades", ts="00:00:12", user="ann", shop="tea", amount=1.0)
        h.epoch()
        assert h.state("watch", "lately", "ann") == 1  # from its beginning
        assert h.state("watch", "total", "ann") == 2.0


def test_errors_and_late_rows() -> None:
    with trades() as h:
        h.feed("trades", ts="00:00:10", user="ann", shop="tea", amount=1.0)
        h.epoch()
        h.feed("trades", ts="00:00:08", user="ann", shop="tea", amount=2.0)
        h.feed("trades", ts="00:00:11", user="ann", shop="tea", amount=-1.0)
        h.epoch()
        assert h.late("trades") == [{"ts": at(8), "user": "ann", "shop": "tea", "amount": 2.0}]
        assert h.late("trades.watermark") == h.late("trades")
        (error,) = h.errors()
        assert error["step"] == "watch" and "an amount below zero (pipelines.py:" in error["reason"]
        assert h.state("watch", "total", "ann") == 1.0  # the failed row left nothing behind
        with pytest.raises(InvalidError, match="keeps no late rows"):
            h.late("watch")


def test_a_control_stream_is_heard_before_the_rows_of_its_epoch() -> None:
    with trades(parallelism=3) as h:
        h.feed("trades", ts="00:00:01", user="ann", shop="tea", amount=5.0)
        h.feed("limits", shop="tea", limit=4.0)
        h.epoch()
        h.expect("alerts", [{"user": "ann", "amount": 5.0}])
        h.feed("limits", {"shop": "tea", "limit": 6.0})
        h.feed("trades", ts="00:00:02", user="ann", shop="tea", amount=5.0)
        h.epoch()
        h.expect("alerts", [{"user": "ann", "amount": 5.0}])
        h.retract("limits", shop="tea")
        h.epoch()
        assert h.state("watch", "limits") == {}


# ---------------------------------------------------------------- time


def test_time_does_not_go_back() -> None:
    with trades() as h:
        h.at("00:10:00")
        with pytest.raises(InvalidError, match="time does not go back"):
            h.at("00:09:59")
        with pytest.raises(InvalidError, match="time does not go back"):
            h.advance(-1)
        h.at(dt.datetime(2024, 1, 1, 2, 0, tzinfo=dt.timezone(dt.timedelta(hours=1))))
        assert h.now == utc(3600)


def test_watermarks_need_a_source_with_event_time() -> None:
    with trades() as h, pytest.raises(InvalidError, match="'limits' is a table"):
        h.watermark("limits", "00:00:01")
    with (
        Harness(counting, {"words": Word}) as h,
        pytest.raises(InvalidError, match="no stream of source 'words' has event time"),
    ):
        h.watermark("words", "00:00:01")


# ---------------------------------------------------------------- crashes


def remembering(calls: list[str]) -> Any:
    """A pipeline that keeps what it must not: a dict in the process."""

    def define(pond: Pond, words: Any) -> None:
        memory: dict[str, int] = {}

        class Both(Process):
            kept = ValueState(int, default=0)

            def on_row(self, row: Any, ctx: Any) -> dict[str, Any]:
                calls.append(row.word)
                memory[row.word] = memory.get(row.word, 0) + 1
                self.kept.value += 1
                return {"word": row.word, "memory": memory[row.word], "kept": self.kept.value}

        schema = {"word": str, "memory": int, "kept": int}
        pond.stream("words", words).key_by("word").process(Both, schema, id="both", latest=True).view("out")

    return define


def test_a_crash_drops_memory_and_keeps_what_was_committed() -> None:
    calls: list[str] = []
    with Harness(remembering(calls), {"words": Word}) as h:
        h.feed("words", word="a")
        h.epoch()
        h.feed("words", word="a")
        h.epoch()
        h.expect("out", [{"word": "a", "memory": 2, "kept": 2}])
        h.feed("words", word="a")
        h.crash()
        h.expect("out", [{"word": "a", "memory": 2, "kept": 2}])
        assert len(calls) == 2
        h.epoch()
        h.expect("out", [{"word": "a", "memory": 1, "kept": 3}])


def test_a_crash_midway_leaves_no_trace_and_its_work_is_done_again() -> None:
    """Law 2: an epoch is visible entirely or not at all."""
    calls: list[str] = []
    with Harness(remembering(calls), {"words": Word}) as h:
        h.feed("words", word="a")
        h.crash(midway=True)
        assert calls == ["a"] and h.view("out") == [] and h.state("both", "kept") == {}
        h.crash(midway=True)
        assert calls == ["a", "a"] and h.view("out") == []
        h.epoch()
        assert calls == ["a", "a", "a"]
        h.expect("out", [{"word": "a", "memory": 1, "kept": 1}])
        h.crash(midway=True)  # nothing to run: it dies all the same
        h.expect("out", [{"word": "a", "memory": 1, "kept": 1}])


def test_a_rescale_lasts_over_a_crash() -> None:
    with trades(parallelism=2) as h:
        assert h.pond.head().parallelism == 2
        h.rescale(5)
        h.crash()
        h.feed("trades", ts="00:00:01", user="ann", shop="tea", amount=5.0)
        h.epoch()
        assert h.pond.head().parallelism == 5


def test_timers_survive_a_crash_and_fire_once() -> None:
    with trades() as h:
        h.feed("trades", ts="00:00:01", user="ann", shop="tea", amount=1.0)
        h.epoch()
        h.crash()
        h.advance("2s")
        h.crash(midway=True)
        h.epoch()
        h.crash()
        h.advance("1h")
        h.epoch()
        assert [r["what"] for r in h.view("out")] == ["check", "trade"]


def test_a_pond_in_a_folder_can_be_read_by_others(tmp_path: Path) -> None:
    with Harness(counting, {"words": Word}, folder=tmp_path / "pond") as h:
        h.feed("words", word="a", x=1)
        h.epoch()
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        assert pond.read("counts").to_pylist() == [{"word": "a", "n": 1, "total": 1}]
    with pytest.raises(InvalidError, match="there is a pond in this folder already"):
        Harness(counting, {"words": Word}, folder=tmp_path / "pond")
    with Harness(counting, {"words": Word}, folder=tmp_path / "pond2", fan_in=2) as h:
        assert h.pond.settings.fan_in == 2 and h.pond.settings.checks


# ---------------------------------------------------------------- expectations


def test_a_wrong_expectation_says_what_differs() -> None:
    with Harness(counting, {"words": Word}) as h:
        h.feed("words", Word("mill", 1), Word("mill", 2), Word("two words", 4))
        h.epoch()
        h.expect("counts", [{"word": "two words", "n": 1, "total": 4}, {"word": "mill", "n": 2, "total": 3}])
        h.expect("counts", [{"word": "mill"}, {"word": "two words"}])  # only that column
        with pytest.raises(AssertionError) as error:
            h.expect("counts", [{"word": "mill", "n": 3}, {"word": "two words", "n": 1}, {"word": "pond"}])
        assert str(error.value).splitlines() == [
            "view 'counts' is not as expected: it has 2 rows, expected 3",
            "  missing      word=mill n=3",
            "  missing      word=pond n=null",
            "  unexpected   word=mill n=2",
            '  as expected  word="two words" n=1',
        ]
        with pytest.raises(AssertionError, match="it has 2 rows, expected 0"):
            h.expect("counts", [])
        with pytest.raises(InvalidError, match="view 'counts' has no column 'm'"):
            h.expect("counts", [{"m": 1}])
        with pytest.raises(InvalidError, match="'x' does not fit column 'n'"):
            h.expect("counts", [{"n": "x"}])
        with pytest.raises(InvalidError, match="no view named 'count'"):
            h.expect("count", [])


def test_rows_are_counted_and_nulls_nans_and_times_compare() -> None:
    def as_is(pond: Pond, rows: Any) -> None:
        pond.stream("rows", rows).view("rows")

    schema = pa.schema([("x", pa.float64()), ("at", pa.timestamp("ms", "UTC")), ("l", pa.list_(pa.int64()))])
    with Harness(as_is, {"rows": schema}) as h:
        h.feed("rows", {"x": float("nan"), "at": "00:00:01.5"}, {"x": 1, "l": [1, 2]}, {"x": 1, "l": [1, 2]})
        h.epoch()
        h.expect(
            "rows", [{"x": float("nan"), "at": utc(1.5)}, {"x": 1.0, "l": [1, 2]}, {"x": 1, "l": [1, 2]}]
        )
        with pytest.raises(AssertionError, match=r"unexpected   x=1.0 at=null l=\[1, 2\]"):
            h.expect("rows", [{"x": float("nan"), "at": "00:00:01.5"}, {"x": 1.0, "l": [1, 2]}])


def test_a_list_keeps_its_order_whatever_the_keys() -> None:
    def collect(pond: Pond, words: Any) -> None:
        def keep(row: Any, xs: Any = XS) -> None:
            xs.append(row.x)

        pond.stream("words", words).key_by("word").process(keep, {"n": int}, id="keep").view("out")

    with Harness(collect, {"words": Word}, parallelism=4) as h:
        for x in range(12):
            h.feed("words", *(Word(w, x) for w in "abcdefg"))
            if x % 5 == 4:
                h.epoch()
        h.epoch()
        assert h.state("keep", "xs") == {w: list(range(12)) for w in "abcdefg"}
