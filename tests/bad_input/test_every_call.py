"""Every public call, called wrongly: an InvalidError that says what to do, never a KeyError or a TypeError."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import AggregatingState, BroadcastState, ListState, MapState, ReducingState, ValueState
from millpond.errors import InvalidError
from millpond.flow.keyed_stream import KeyedStream
from millpond.flow.stream import ProcessedStream, Stream, ViewHandle
from millpond.pond import Pond
from millpond.sinks.callback import CallbackSink
from millpond.sinks.parquet import ParquetSink
from millpond.sources.files import FileSource
from millpond.sources.memory import MemorySource
from millpond.testing import Harness

COLUMNS = {"k": str, "x": int, "at": datetime.datetime}
ROW = {"k": "a", "x": 1, "at": datetime.datetime(2024, 1, 1)}
OUT = {"a": int}


class DataFrame:
    """Stands for one of pandas, which is not installed for tests."""

    __module__ = "pandas.core.frame"


class World:
    """A pond that ran, one that is being defined, and a harness; no call here changes them."""

    def __init__(self) -> None:
        self.ran = self._defined()
        self.ran.drain()
        self.p = self._defined()
        self.s = Stream(self.p._builder, "clicks.watermark")
        self.keyed = self.s.key_by("k")
        self.view = ViewHandle(self.p._builder, "clicks.watermark.by-k", "by_city")
        self.processed = self.keyed.process(lambda row: [], OUT, id="processed")
        self.none = millpond.open("memory://", engine="inline")
        self.closed = self._defined()
        self.closed.drain()
        self.closed.close()
        self.h = Harness(_pipeline, {"words": {"word": str}})
        self.source = MemorySource({"a": int, "b": str})

    def _defined(self) -> Pond:
        pond = millpond.open("memory://", engine="inline")
        source = MemorySource(COLUMNS)
        source.push([ROW])
        clicks = pond.stream("clicks", source, event_time="at", delay="5s")
        clicks.key_by("k").aggregate(n="count(*)").view("by_city")
        pond.table("t", {"a": int, "b": str}, key="a")
        return pond

    def close(self) -> None:
        for pond in (self.ran, self.p, self.none, self.h):
            pond.close()


def _pipeline(pond: Pond, words: MemorySource) -> None:
    pond.stream("words", words).key_by("word").aggregate(n="count(*)").view("counts")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


Case = tuple[Callable[[World], Any], str]  # a wrong call, and words of what is said about it

CASES: dict[str, list[Case]] = {
    "open": [
        (lambda w: millpond.open(5), "a path or a uri"),  # type: ignore[arg-type]
        (lambda w: millpond.open(""), "a path or a uri"),
        (lambda w: millpond.open(), "open(path"),  # type: ignore[call-arg]
        (lambda w: millpond.open("x", engine="inline", retain_epoch=1), "retain_epochs"),
        (lambda w: millpond.open("x", engine="inline", retain_epochs=-1), "retain_epochs"),
        (lambda w: millpond.open("x", engine="inline", on_epoch=5), "must be a function"),  # type: ignore[arg-type]
        (lambda w: millpond.open("x", engine="inline", clock=5), "clock"),  # type: ignore[arg-type]
        (lambda w: millpond.open("x", engine="inline", store_options=5), "dict"),  # type: ignore[arg-type]
    ],
    "Pond.stream": [
        (lambda w: w.p.stream("x", "orders/"), "FileSource('orders/', format=...)"),
        (lambda w: w.p.stream("x", DataFrame()), "pond.table('x', schema)"),
        (lambda w: w.p.stream("x", pa.table({"a": [1]})), "pond.table('x', schema)"),
        (lambda w: w.p.stream("x", MemorySource), "pass an instance: MemorySource(...)"),
        (lambda w: w.p.stream("x", {"a": int}), "pond.table('x'"),
        (lambda w: w.p.stream("x", None), "needs a source"),
        (lambda w: w.p.stream("x"), "call it as stream(name, source"),
        (lambda w: w.p.stream("x", MemorySource(COLUMNS), event_time="att"), "did you mean 'at'?"),
        (lambda w: w.p.stream("x", MemorySource(COLUMNS), event_time="at", delay="soon"), "not a duration"),
        (lambda w: w.p.stream("x", MemorySource(COLUMNS), event_time="at", delay=None), "not a duration"),
        (lambda w: w.p.stream("x", MemorySource(COLUMNS), delay="5s"), "event_time="),
        (lambda w: w.ran.stream("x", MemorySource(COLUMNS)), "pond.changing()"),
        (lambda w: w.p.stream("clicks", MemorySource(OUT)), "used twice"),
    ],
    "Pond.table": [
        (lambda w: w.p.table("x", 5), "this is not a schema"),
        (lambda w: w.p.table("x", "a int"), "this is not a schema"),
        (lambda w: w.p.table("x", {"a": int}, key="b"), "some of its columns"),
        (lambda w: w.p.table("x", {"a": int}, key=5), "some of its columns"),
        (lambda w: w.p.table("x", pa.schema([])), "at least one column"),
        (lambda w: w.p.table("x"), "call it as table("),
    ],
    "Pond.stream_of": [(lambda w: w.ran.stream_of("nope"), "nope"), (lambda w: w.ran.stream_of(5), "text")],
    "Pond.explain": [(lambda w: w.ran.explain("dot"), '"text" or "mermaid"')],
    "Pond.sql": [(lambda w: w.ran.sql(5), "text"), (lambda w: w.ran.sql("selec 1"), "selec")],
    "Pond.function": [(lambda w: w.ran.function(5), "needs a name")],
    "Pond.change": [(lambda w: w.ran.change(5), "needs a plan")],
    "Pond.changing": [(lambda w: w.ran.changing(5), "call it as changing(")],
    "Pond.transaction": [(lambda w: w.ran.transaction(5), "call it as transaction(")],
    "Pond.serve": [
        (lambda w: w.ran.serve(host="0.0.0.0"), "listens only on loopback"),
        (lambda w: w.ran.serve(http=8080), "did you mean 'http_port'?"),
    ],
    "Pond.shed": [
        (lambda w: w.ran.shed("nope"), "nope"),
        (lambda w: w.ran.shed("clicks", "soon"), "not a duration"),
        (lambda w: w.ran.shed("clicks", floor=2), "floor"),
        (lambda w: w.ran.shed("clicks", by="luck"), "by"),
    ],
    "Pond.bounds": [
        (lambda w: w.ran.bounds("by_ctiy", counts="n"), "did you mean 'by_city'?"),
        (lambda w: w.ran.bounds("by_city", counts="nn"), "nn"),
    ],
    "Pond.replace": [(lambda w: w.p.replace("by_ctiy"), "did you mean 'by_city'?")],
    "Pond.drop_view": [(lambda w: w.ran.drop_view("by_ctiy"), "did you mean 'by_city'?")],
    "Pond.rename_view": [
        (lambda w: w.ran.rename_view("by_ctiy", "x"), "did you mean 'by_city'?"),
        (lambda w: w.ran.rename_view("by_city", 5), "must be text"),
        (lambda w: w.ran.rename_view("by_city", "t"), "already"),
    ],
    "Pond.swap_views": [(lambda w: w.ran.swap_views("by_city", "tt"), "no view named 'tt'")],
    "Pond.drain": [(lambda w: w.none.drain(), "define a stream"), (lambda w: w.closed.drain(), "closed")],
    "Pond.start": [(lambda w: w.none.start(), "define a stream"), (lambda w: w.closed.start(), "closed")],
    "Pond.run": [(lambda w: w.none.run(), "define a stream"), (lambda w: w.closed.run(), "closed")],
    "Pond.compact": [(lambda w: w.none.compact(), "define a stream")],
    "Pond.on_epoch": [(lambda w: w.ran.on_epoch(5), "must be a function")],
    "Pond.set": [
        (lambda w: w.ran.set(target_ms=0), "at least 1"),
        (lambda w: w.ran.set(target=1), "target_ms"),
        (lambda w: w.ran.set(fan_in=3), "close the pond"),
        (lambda w: w.closed.set(target_ms=5), "closed"),
    ],
    "Pond.pause": [(lambda w: w.closed.pause(), "closed")],
    "Pond.resume": [(lambda w: w.closed.resume(), "closed")],
    "Pond.rescale": [(lambda w: w.ran.rescale(0), "1 to 32768"), (lambda w: w.closed.rescale(2), "closed")],
    "Pond.savepoint": [
        (lambda w: w.ran.savepoint(""), "empty"),
        (lambda w: w.ran.savepoint(5), "must be text"),
        (lambda w: w.ran.savepoint("12"), "taken for an epoch"),
        (lambda w: w.none.savepoint("x"), "no pond here yet"),
        (lambda w: w.closed.savepoint("x"), "closed"),
    ],
    "Pond.drop_savepoint": [(lambda w: w.ran.drop_savepoint("nope"), "no savepoint named 'nope'")],
    "Pond.advance": [(lambda w: w.ran.advance("nope", 5), "")],
    "Pond.finish": [(lambda w: w.ran.finish("nope"), "")],
    "Pond.watermarks": [(lambda w: w.ran.watermarks(5), "")],
    "Pond.rollback": [
        (lambda w: w.ran.rollback(None), "needs an epoch"),
        (lambda w: w.ran.rollback(1.5), "an epoch is a number"),
        (lambda w: w.ran.rollback(99), "no epoch 99"),
        (lambda w: w.ran.rollback("nope"), "no savepoint named 'nope'"),
    ],
    "Pond.migrate": [
        (lambda w: w.ran.migrate("nope", lambda r: r), "nope"),
        (lambda w: w.ran.migrate(None), "a step and a function"),
    ],
    "Pond.bootstrap": [(lambda w: w.ran.bootstrap("nope", "x", []), "nope")],
    "Pond.fork": [
        (lambda w: w.ran.fork(5), "a path or a uri"),
        (lambda w: w.ran.fork("memory://", epoch="nope"), "no savepoint"),
    ],
    "Pond.insert": [
        (lambda w: w.ran.insert("tt", [{"a": 1}]), "did you mean 't'?"),
        (lambda w: w.ran.insert("t", 5), "rows do not fit"),
        (lambda w: w.ran.insert("t", "a"), "rows do not fit"),
        (lambda w: w.ran.insert("t", [(1, "x")]), "a row is a dict"),
        (lambda w: w.ran.insert("t", [{"a": 1, "bb": 1}]), "did you mean 'b'?"),
        (lambda w: w.ran.insert("t", [{"a": "x"}]), "a int64"),
        (lambda w: w.ran.insert("t", DataFrame()), "rows do not fit"),
        (lambda w: w.ran.insert(["t"], [{"a": 1}]), "must be text"),
        (lambda w: w.ran.insert("t"), "call it as insert(table, rows, "),
        (lambda w: w.ran.insert("t", [{"a": 1}], request=5), "request"),
        (lambda w: w.ran.insert("clicks", [ROW]), "no table named 'clicks'"),
        (lambda w: w.closed.insert("t", [{"a": 1}]), "closed"),
    ],
    "Pond.delete": [(lambda w: w.ran.delete("tt", [{"a": 1}]), "did you mean 't'?")],
    "Pond.flush": [(lambda w: w.ran.flush("x"), "seconds"), (lambda w: w.ran.flush(-1), "seconds")],
    "Pond.read": [
        (lambda w: w.ran.read("by_ctiy"), "did you mean 'by_city'?"),
        (lambda w: w.ran.read(None), "no view named None"),
        (lambda w: w.ran.read("by_city", 1), "epoch=None"),
        (lambda w: w.ran.read("by_city", epoch=1.5), "an epoch is a number"),
        (lambda w: w.ran.read("by_city", epoch=[1]), "an epoch is a number"),
        (lambda w: w.none.read("x"), "pond.drain()"),
    ],
    "Pond.lookup": [
        (lambda w: w.ran.lookup("by_ctiy", "a"), "did you mean 'by_city'?"),
        (lambda w: w.ran.lookup("by_city", "a", "b"), "lookup(view, key, *, epoch=None)"),
        (lambda w: w.ran.lookup("by_city"), "lookup(view, key, *, epoch=None)"),
        (lambda w: w.ran.lookup("by_city", 5), "k string"),
        (lambda w: w.ran.lookup("by_city", {"z": 1}), "'k'"),
    ],
    "Pond.diff": [(lambda w: w.ran.diff("by_city", None, 1), "needs an epoch")],
    "Pond.changes": [
        (lambda w: list(w.ran.changes("nope")), "no view"),
        (lambda w: list(w.ran.changes("by_city", since=1.5)), "an epoch is a number"),
    ],
    "Pond.state": [(lambda w: w.ran.state("nope", "x"), "nope"), (lambda w: w.ran.state(None, None), "None")],
    "Pond.state_rows": [(lambda w: w.ran.state_rows("nope", "x"), "nope")],
    "Pond.export": [
        (lambda w: w.ran.export("nope", "x", "y"), "nope"),
        (lambda w: w.ran.export("clicks.watermark.by-k", "groups", 5), "the path of a file"),
    ],
    "Pond.errors": [(lambda w: w.ran.errors("by_ctiy"), "did you mean 'by_city'?")],
    "Pond.late": [
        (lambda w: w.ran.late("clicks"), "did you mean 'clicks.watermark'?"),
        (lambda w: w.ran.late("t"), "steps that keep late rows are clicks.watermark"),
        (lambda w: w.ran.late(5), "keeps no late rows"),
    ],
    "Pond.clear_errors": [(lambda w: w.ran.clear_errors("nope"), "no view named 'nope'")],
    "Pond.clear_late": [(lambda w: w.ran.clear_late("clicks"), "keeps no late rows")],
    "Pond.attach_sink": [(lambda w: w.ran.attach_sink("nope"), "nope")],
    "Pond.detach_sink": [(lambda w: w.ran.detach_sink("nope"), "nope")],
    "Pond.epochs": [
        (lambda w: w.ran.epochs("x"), "whole number"),
        (lambda w: w.ran.epochs(-1), "whole number"),
    ],
    "Pond.at": [(lambda w: w.ran.at("nope"), "no savepoint"), (lambda w: w.ran.at(object()), "is a number")],
    "Pond.replay": [
        (lambda w: w.ran.replay(None), "needs an epoch"),
        (lambda w: w.ran.replay(1, step="clicksx"), "did you mean 'clicks'?"),
        (lambda w: w.ran.replay(1, plan=5), "needs a plan"),
        (lambda w: w.ran.replay(1, on_input=5), "must be a function"),
    ],
    "Stream.select": [
        (lambda w: w.s.select(5), "must be text"),
        (lambda w: w.s.select(a=5), "must be text"),
        (lambda w: w.s.select(), "at least one column"),
    ],
    "Stream.with_columns": [
        (lambda w: w.s.with_columns(a=5), "must be text"),
        (lambda w: w.s.with_columns("a"), "call it as with_columns("),
    ],
    "Stream.filter": [
        (lambda w: w.s.filter(5), "a function is needed"),
        (lambda w: w.s.filter("x + 1"), "x + 1"),
    ],
    "Stream.branch": [
        (lambda w: w.s.branch(5), "a function is needed"),
        (lambda w: w.s.branch(), "at least one"),
    ],
    "Stream.map": [
        (lambda w: w.s.map(5), "a function is needed"),
        (lambda w: w.s.map(lambda r: r), "schema"),
    ],
    "Stream.flat_map": [(lambda w: w.s.flat_map("x"), "a function is needed")],
    "Stream.map_batches": [(lambda w: w.s.map_batches(lambda a, b: a), "cannot be called")],
    "Stream.union": [(lambda w: w.s.union(5), "needs a stream"), (lambda w: w.s.union(w.keyed), "key_by()")],
    "Stream.watermark": [
        (lambda w: w.s.watermark("at", -1), "-1"),
        (lambda w: w.s.watermark(5, "1s"), "must be text"),
        (lambda w: w.s.watermark(), "call it as watermark(time"),
    ],
    "Stream.late": [(lambda w: w.p.table("late", OUT).late(), "no watermark")],
    "Stream.tumble": [
        (lambda w, wrong=wrong: w.s.tumble(wrong), "")  # type: ignore[misc]
        for wrong in (0, "-5s", None, float("inf"), float("nan"), True, [1])
    ],
    "Stream.hop": [
        (lambda w: w.s.hop("5s", "0s"), ""),
        (lambda w: w.s.hop("5s"), "call it as hop(size, slide"),
    ],
    "Pond.view": [(lambda w: w.ran.view("by_cty"), "did you mean 'by_city'?")],
    "Pond.on_wait": [(lambda w: w.p.on_wait(5), "must be a function")],
    "Stream.key_by": [
        (lambda w: w.s.key_by(["k"]), "must be text"),
        (lambda w: w.s.key_by(z=5), "must be text"),
        (lambda w: w.s.key_by("kk"), "did you mean 'k'?"),
    ],
    "Stream.shards": [(lambda w: w.s.shards(0), "at least 1"), (lambda w: w.s.shards("x"), "at least 1")],
    "Stream.aggregate": [(lambda w: w.s.aggregate("count(*)"), "aggregate(n='count(*)')")],
    "Stream.reduce": [(lambda w: w.s.reduce(5), "a function is needed")],
    "Stream.distinct": [(lambda w: w.s.distinct(5), "must be text")],
    "Stream.top_n": [
        (lambda w: w.s.top_n("x", "x"), "at least 1"),
        (lambda w: w.s.top_n(1.5, "x"), "at least 1"),
        (lambda w: w.s.top_n(1, 5), '"column desc"'),
    ],
    "Stream.join": [
        (lambda w: w.s.join("by_city", "k"), "pond.stream_of(name)"),
        (lambda w: w.s.join(w.s, 5), "on="),
        (lambda w: w.s.join(w.s, []), "on="),
        (lambda w: w.s.join(w.s, [("k", "k", "k")]), "two columns"),
        (lambda w: w.s.join(w.s.select("k"), "k", broadcast="up"), '"left"'),
        (lambda w: w.s.join(w.none.table("q", {"k": str}), "k"), "same pond"),
    ],
    "Stream.view": [
        (lambda w: w.s.view(5), "must be text"),
        (lambda w: w.s.view("x", key=5), "must be text"),
    ],
    "ViewHandle.sink": [
        (lambda w: w.view.sink("s", 5), "CallbackSink"),
        (lambda w: w.view.sink("s", print), "CallbackSink"),
        (lambda w: w.s.sink("s", CallbackSink(print)), 'view("name").sink('),
    ],
    "ProcessedStream.side": [(lambda w: w.processed.side("x"), "no side output 'x'")],
    "KeyedStream.aggregate": [
        (lambda w: w.keyed.aggregate("count(*)"), "aggregate(n='count(*)')"),
        (lambda w: w.keyed.aggregate(n=5), "must be text"),
        (lambda w: w.keyed.aggregate(n="max(x)", buckets=-1), "at least 1"),
        (lambda w: w.keyed.sum("x"), 'aggregate(n="count(*)"'),
        (lambda w: w.s.group_by("k"), "use key_by"),
    ],
    "KeyedStream.top_n": [
        (lambda w: w.keyed.top_n(1, "x", offset=-1), "at least 0"),
        (lambda w: w.keyed.top_n(1, "x", buckets=0), "at least 1"),
    ],
    "KeyedStream.window": [
        (lambda w: w.keyed.window("10s"), "are no windows"),
        (lambda w: w.keyed.window(), "call it as window(windows"),
    ],
    "KeyedStream.in_order": [(lambda w: w.keyed.in_order(slack=-1, time="at"), "")],
    "KeyedStream.first": [
        (lambda w: w.keyed.first(5), '"column desc"'),
        (lambda w: w.s.first("x"), "key_by"),
        (lambda w: w.keyed.first(), "call it as first(by"),
    ],
    "KeyedStream.reduce": [(lambda w: w.keyed.reduce(lambda a: a), "cannot be called with")],
    "KeyedStream.process": [
        (lambda w: w.s.process(lambda row: []), 'key_by("column").process(...)'),
        (lambda w: w.keyed.process(5), "a Process class or a function"),
        (lambda w: w.keyed.process(lambda row: [], OUT, control=5), "needs a stream"),
        (lambda w: w.keyed.process(lambda row: [], OUT, timeout=-1), "positive"),
        (lambda w: w.keyed.process(lambda row: [], OUT, sides=["x"]), "sides="),
        (lambda w: w.keyed.filter("x > 1"), "before key_by()"),
    ],
    "KeyedStream.process_batch": [
        (lambda w: w.keyed.process_batch(5, OUT), "takes a function"),
        (lambda w: w.s.process_batch(5, OUT), "key_by"),
    ],
    "KeyedStream.apply": [
        (lambda w: w.keyed.apply(5), "a function is needed"),
        (lambda w: w.keyed.apply(sql=5), "must be text"),
        (lambda w: w.s.apply(sql="select 1"), "key_by"),
    ],
    "ValueState": [
        (lambda w: ValueState(int, tll="1h"), "cannot be called like this"),
        (lambda w: w.keyed.process(lambda row, v=ValueState(5): [], OUT), "cannot be the type"),
        (lambda w: w.keyed.process(lambda row, v=ValueState(int, default="x"): [], OUT), "not of its type"),
        (lambda w: w.keyed.process(lambda row, v=ValueState(int, ttl="soon"): [], OUT), "not a duration"),
        (lambda w: ValueState(int).get(), "only inside the process step"),
    ],
    "ListState": [(lambda w: len(ListState(int)), "only inside the process step")],
    "MapState": [
        (lambda w: MapState(str, int)["a"], "only inside the process step"),
        (lambda w: w.keyed.process(lambda row, v=MapState(5): [], OUT), "cannot be the type"),
    ],
    "BroadcastState": [(lambda w: BroadcastState(str, int).get("a"), "only inside the process step")],
    "ReducingState": [
        (lambda w: ReducingState(5), "must be a function"),
        (lambda w: ReducingState(), "function"),
    ],  # type: ignore[call-overload]
    "AggregatingState": [(lambda w: AggregatingState(5, 5), "must be a function")],  # type: ignore[arg-type]
    "MemorySource": [(lambda w: MemorySource(5), "not a schema"), (lambda w: MemorySource(), "schema")],
    "MemorySource.push": [
        (lambda w: w.source.push([{"a": 1, "b": "x", "c": 2}]), "no column 'c'"),
        (lambda w: w.source.push([{"a": 1}]), "lacks column 'b'"),
        (lambda w: w.source.push([{"a": "x", "b": "y"}]), "do not fit"),
        (lambda w: w.source.push(pa.table({"a": [1]})), "lacks column 'b'"),
        (lambda w: w.source.push(pa.table({"a": ["x"], "b": ["y"]})), "do not fit"),
        (lambda w: w.source.push("x"), "not a list of rows"),
        (lambda w: w.source.push([(1, "x")]), "a row is a dict"),
        (lambda w: w.source.push([{"a": 1, "b": "x", "_w": -1}]), "append_only=False"),
    ],
    "FileSource": [
        (lambda w: FileSource(5), "needs a folder"),  # type: ignore[arg-type]
        (lambda w: FileSource(__file__, schema=OUT), "follows a folder"),  # type: ignore[arg-type]
        (lambda w: FileSource("nowhere-at-all"), "nowhere-at-all"),
        (lambda w: FileSource(".", format="xml"), "parquet"),  # type: ignore[arg-type]
        (lambda w: FileSource(".", schema=OUT, pattern=5), "must be text"),  # type: ignore[arg-type]
    ],
    "ParquetSink": [
        (lambda w: ParquetSink(5), "needs a folder"),
        (lambda w: ParquetSink("x", mode="y"), "mode"),
    ],  # type: ignore[arg-type]
    "CallbackSink": [(lambda w: CallbackSink(5), "5")],  # type: ignore[arg-type]
    "Harness": [
        (lambda w: Harness(5), "must be a function"),  # type: ignore[arg-type]
        (lambda w: Harness(_pipeline, ["words"]), "the columns of each source"),  # type: ignore[arg-type]
        (lambda w: Harness(_pipeline, {"words": {"word": str}}, parallelism=0), "1 to 32768"),
        (lambda w: Harness(), "call it as Harness(pipeline"),  # type: ignore[call-arg]
    ],
    "Harness.feed": [
        (lambda w: w.h.feed("wrds", {"word": "x"}), "did you mean 'words'?"),
        (lambda w: w.h.feed("words", {"wrd": "x"}), "wrd"),
        (lambda w: w.h.feed("words", [{"word": "x"}]), "a row is a dict"),
        (lambda w: w.h.feed("words"), "no row"),
    ],
    "Harness.retract": [(lambda w: w.h.retract("words", {"word": "x"}), "append-only")],
    "Harness.watermark": [(lambda w: w.h.watermark("words", "00:00:01"), "event_time")],
    "Harness.advance": [
        (lambda w: w.h.advance(-1), "go back"),
        (lambda w: w.h.advance("x"), "not a duration"),
    ],
    "Harness.at": [(lambda w: w.h.at("x"), "not a time"), (lambda w: w.h.at(5), "not a time")],
    "Harness.rescale": [(lambda w: w.h.rescale(0), "1 to 32768")],
    "Harness.view": [(lambda w: w.h.view("count"), "did you mean 'counts'?")],
    "Harness.changes": [(lambda w: w.h.changes("nope"), "nope")],
    "Harness.state": [(lambda w: w.h.state("x", "y"), "process step")],
    "Harness.timers": [(lambda w: w.h.timers("x"), "process step")],
    "Harness.late": [(lambda w: w.h.late("words"), "late rows")],
    "Harness.expect": [(lambda w: w.h.expect("counts", {"word": "x"}), "a list of rows")],
}
# Calls that take nothing that could be wrong, or that the engine makes.
NOTHING_TO_GET_WRONG = {
    *("Pond.stop", "Pond.close", "Pond.head", "Pond.views", "Pond.states", "Pond.savepoints", "Pond.sinks"),
    *("Pond.source_lag", "Pond.scaling", "Pond.shedding", "Pond.new_session"),
    *("Harness.close", "Harness.epoch", "Harness.crash", "Harness.compact", "Harness.errors"),
    *(f"MemorySource.{n}" for n in ("table", "poll", "advance", "again", "history", "read")),
    *(f"FileSource.{n}" for n in ("table", "poll", "advance", "history", "read", "read_encoded")),
    *("ParquetSink.deliver", "CallbackSink.deliver", "CallbackSink.write"),
}
CLASSES = [Pond, Stream, ViewHandle, ProcessedStream, KeyedStream, MemorySource, FileSource, ParquetSink]
CLASSES += [CallbackSink, Harness]
ELSEWHERE = {"Pond.backup"}  # with a suite of its own


def public() -> set[str]:
    """Every public function, class that people make, and method of theirs."""
    found = {"open", "MemorySource", "FileSource", "ParquetSink", "CallbackSink", "Harness"}
    found |= {name for name in millpond.__all__ if name.endswith("State")}
    for cls in CLASSES:
        for name, member in vars(cls).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                found.add(f"{cls.__name__}.{name}")
    return found


def test_every_public_call_has_a_wrong_one() -> None:
    assert public() - CASES.keys() - NOTHING_TO_GET_WRONG - ELSEWHERE == set()
    assert CASES.keys() <= public()


@pytest.mark.parametrize("name", CASES)
def test_wrong_calls(world: World, name: str) -> None:
    for number, (call, words) in enumerate(CASES[name]):
        with pytest.raises(InvalidError) as caught:
            call(world)
            pytest.fail(f"{name}, case {number} was accepted")
        error = caught.value
        assert words in str(error), f"{name}, case {number}: {error}"
        assert "\n" not in error.message


def test_what_is_accepted(world: World) -> None:
    """Near misses that have one meaning."""
    world.ran.insert("t", {"a": 1, "b": "x"})
    world.ran.insert("t", pa.record_batch({"a": [2], "b": ["y"]}))
    world.ran.drain()
    assert sorted(world.ran.read("t")["a"].to_pylist()) == [1, 2]
    source = MemorySource({"a": int})
    source.push({"a": 1}, pa.record_batch({"a": [2]}))
    assert [item.num_rows for item in source.items] == [1, 1]
    assert not hasattr(world.s, "process") and hasattr(world.keyed, "process")
