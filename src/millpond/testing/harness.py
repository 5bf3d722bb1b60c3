"""Runs a pipeline under the control of a test, in this process, without a JVM.

Law: nothing runs outside `epoch()`.  Rows, event time and the clock are set
before it and take effect in it, so a test reads in the order of events.  The pond is real and makes every
commit of a real one: `crash` drops everything in memory and opens it again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import pyarrow as pa

from millpond.arguments.call_errors import checked, need_callable
from millpond.arguments.durations import Duration, microseconds
from millpond.arguments.schemas import Like, schema_of
from millpond.clock import ManualClock
from millpond.engine.coordinator.commands import require_parallelism
from millpond.errors import InvalidError
from millpond.operators.scan import Scan
from millpond.operators.traits import SetsWatermark
from millpond.pond import Pond, harness_access
from millpond.process.context import Timer
from millpond.settings import make_settings
from millpond.sources.inbox_table import InboxTable
from millpond.sources.memory import EventTimeBound, MemorySource
from millpond.state.manifest import history
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import Store, open_store
from millpond.testing import state_inspection
from millpond.testing.dying_store import Died, DyingStore
from millpond.testing.notation import DAY, EPOCH, US, ExpectedValue, fitted, micros_of, show
from millpond.testing.row_differences import Seen

Row = Mapping[str, Any]
Instant = datetime.datetime | str

# The pond of a test has no other users: no process waits for its lease, and every operator is checked.
SETTINGS: Mapping[str, Any] = {"checks": True, "durable": False, "lease_ms": 3_600_000}


@checked
class Harness:
    """A pipeline that a test controls.

    `pipeline(pond, **sources)` defines streams and views; `sources` has the columns of each source, in any
    form that `schema=` accepts elsewhere, and the pipeline gets them as keyword arguments:

    >>> def pipeline(pond, words):
    ...     stream = pond.stream("words", words, event_time="at", delay="5s")
    ...     stream.key_by("word").aggregate(n="count(*)").view("counts")
    ...     pond.table("stop_words", {"word": str}, key="word")
    >>> harness = Harness(pipeline, {"words": {"word": str, "at": datetime.datetime}})
    >>> harness.feed("words", {"word": "mill", "at": "00:00:01"}, {"word": "mill", "at": "00:00:02"})
    >>> harness.epoch()
    1
    >>> harness.view("counts")
    [{'word': 'mill', 'n': 2}]

    Rows of the sources named in `retracts` can be retracted.  Time begins at 2024-01-01 00:00:00 UTC,
    and a time written as "00:00:05" is on that day.  With `folder` the pond is stored there, so that other
    tools can read it; otherwise it is in memory.  `settings` are those of `millpond.open`.
    """

    def __init__(
        self,
        pipeline: Callable[..., Any],
        sources: Mapping[str, Like] | None = None,
        *,
        parallelism: int = 1,
        retracts: Collection[str] = (),
        folder: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        need_callable("a pipeline", pipeline)
        require_parallelism(parallelism)
        if sources is not None and not isinstance(sources, Mapping):
            raise InvalidError(
                "sources must say the columns of each source",
                detail=f"got {sources!r}"[:200],
                hint='Harness(pipeline, {"words": {"word": str}})',
            )
        schemas = {name: schema_of(like) for name, like in (sources or {}).items()}
        self._pipeline = pipeline
        self._sources = {n: MemorySource(s, append_only=n not in retracts) for n, s in schemas.items()}
        if strange := [name for name in retracts if name not in schemas]:
            raise InvalidError(
                f"no source named {strange[0]!r}", detail=f"sources are {', '.join(schemas) or 'none'}"
            )
        _check_call(pipeline, list(schemas))
        self._parallelism = parallelism
        self._settings = make_settings(**{**SETTINGS, **settings})
        self._below: Store = MemoryStore() if folder is None else _folder(folder)
        self._pending: list[tuple[str, Any]] = []  # (source or table, rows)
        self._now_us = micros_of(DAY)
        self._clock = ManualClock(self._now_us)
        self._told: dict[str, int] = {}  # by view: the epoch up to which its changes were returned
        self._began = 0
        self.pond = self._open()
        self.pond.drain()
        self._began = self.pond.epoch

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the pond.

        >>> harness.close()
        """
        self.pond.close()

    def _open(self) -> Pond:
        self._store = DyingStore(self._below)
        new = history.read_head(self._below) is None
        pond = Pond(
            self._store,
            engine="inline",
            parallelism=self._parallelism if new else None,  # a rescale survives a restart
            settings=self._settings,
            clock=self._clock,
        )
        self._pipeline(pond, **self._sources)
        return pond

    # -- what happens -----------------------------------------------------------------

    def feed(self, source: str, /, *rows: Row | Any, **row: Any) -> None:
        """Add rows for the next epoch, to a source or a table of the pond: dicts, dataclasses, or columns.

        Columns that are omitted are NULL; `_w` of -1 retracts a row, like `retract`.

        >>> harness.feed("words", {"word": "mill", "at": "00:00:03"}, {"word": "pond", "at": "00:00:03"})
        >>> harness.feed("stop_words", word="the")  # one row, by its columns
        >>> _ = harness.epoch()
        >>> harness.view("stop_words")
        [{'word': 'the'}]
        """
        self._feed(source, (*rows, row) if row else rows, 1)

    def retract(self, source: str, /, *rows: Row | Any, **row: Any) -> None:
        """Retract rows in the next epoch; from a table of the pond with a key, by its key.

        >>> harness.feed("stop_words", word="the")
        >>> _ = harness.epoch()
        >>> harness.retract("stop_words", word="the")
        >>> _ = harness.epoch()
        >>> harness.view("stop_words")
        []
        """
        self._feed(source, (*rows, row) if row else rows, -1)

    def _feed(self, source: str, rows: Sequence[Any], sign: int) -> None:
        schema, can_retract = self._fed(source)
        kinds = {**state_inspection.kinds_of(schema), "_w": pa.int64()}
        if not rows:
            raise InvalidError(f"no row is given for {source!r}", hint='feed("trades", {"user": "ann"})')
        found = []
        for row in rows:
            given = dict.fromkeys(schema.names) | as_dict(row)
            fit = {name: fitted(value, name, kinds, repr(source)) for name, value in given.items()}
            fit["_w"] = sign * fit.get("_w", 1)
            if fit["_w"] < 0 and not can_retract:
                raise InvalidError(
                    f"rows of {source!r} cannot be taken back",
                    detail="the source is append-only",
                    hint=f'name it in Harness(..., retracts=["{source}"]), or feed a table of the pond',
                )
            found.append(fit)
        self._pending.append((source, found))

    def watermark(self, source: str, time: Instant) -> None:
        """Advance event time without a row: no row of this source before `time` will follow.

        >>> harness.watermark("words", "00:10:00")
        >>> _ = harness.epoch()
        >>> harness.feed("words", word="mill", at="00:01:00")
        >>> _ = harness.epoch()
        >>> [row["word"] for row in harness.late("words.watermark")]
        ['mill']
        """
        if source not in self._sources:
            self._fed(source)
            raise InvalidError(
                f"{source!r} is a table, and tables have no event time", hint="name a source of the harness"
            )
        if not self._has_event_time(source):
            raise InvalidError(
                f"no stream of source {source!r} has event time",
                hint="pass event_time= to pond.stream() in the pipeline",
            )
        self._pending.append((source, EventTimeBound(micros_of(time))))

    def advance(self, duration: Duration) -> None:
        """Advance the clock, effective in the next epoch: "5s", "1h", seconds, or a timedelta.

        >>> harness.advance("1h")
        >>> harness.now.hour
        1
        """
        us = microseconds(duration)
        if us < 0:
            raise InvalidError("time does not go back", detail=f"advance by {duration!r}")
        self._now_us += us

    def at(self, time: Instant) -> None:
        """Set the clock, effective in the next epoch; it does not go back.

        >>> harness.at("12:30:00")
        >>> harness.now.hour, harness.now.minute
        (12, 30)
        """
        us = micros_of(time)
        if us < self._now_us:
            raise InvalidError("time does not go back", detail=f"it is {self.now} already, asked for {time}")
        self._now_us = us

    @property
    def now(self) -> datetime.datetime:
        """The time of the clock, in UTC.

        >>> harness.now.isoformat()
        '2024-01-01T00:00:00+00:00'
        """
        return (EPOCH + self._now_us * US).replace(tzinfo=datetime.UTC)

    def epoch(self) -> int:
        """Run the rows that were fed and the timers that are due, and commit; returns the newest epoch.

        >>> harness.feed("words", word="pond", at="00:00:03")
        >>> harness.epoch()
        2
        """
        self._give()
        return self.pond.drain()

    def crash(self, *, midway: bool = False) -> None:
        """Drop everything in memory and open the pond again, as after a kill -9.

        Rows that were fed and not yet run are kept, like messages in a queue.  With `midway` the next epoch
        runs first, if there is anything to run, and the process dies just before the commit: that work must
        be done again.

        >>> harness.feed("words", word="mill", at="00:00:03")
        >>> harness.crash(midway=True)
        >>> _ = harness.epoch()
        >>> harness.view("counts")
        [{'word': 'mill', 'n': 3}]
        """
        if midway:
            self._die()
        harness_access.kill(self.pond)
        self.pond = self._open()

    def _die(self) -> None:
        harness_access.take_over(self.pond)
        self._give()
        self._store.armed = True
        with contextlib.suppress(Died):
            self.pond.drain()

    def rescale(self, n: int) -> None:
        """Change the number of tasks of the next epochs.

        >>> harness.rescale(3)
        >>> harness.pond.head().parallelism
        3
        """
        self.pond.rescale(n)

    def compact(self) -> None:
        """Merge the runs of every table, as a running pond does in the background.

        >>> harness.compact()
        """
        self.pond.compact()

    # -- results ------------------------------------------------------------------------

    def view(self, name: str) -> list[dict[str, Any]]:
        """The rows of a view, sorted by its columns.

        >>> harness.view("counts")
        [{'word': 'mill', 'n': 2}]
        """
        return self._view_seen(name).sorted()

    def changes(self, view: str) -> list[dict[str, Any]]:
        """The changes of a view since the last call, with `_w`: removed rows first, sorted.

        >>> _ = harness.changes("counts")
        >>> harness.feed("words", word="mill", at="00:00:03")
        >>> _ = harness.epoch()
        >>> harness.changes("counts")
        [{'word': 'mill', 'n': 2, '_w': -1}, {'word': 'mill', 'n': 3, '_w': 1}]
        """
        return self._changes_seen(view).sorted()

    def state(self, step: str, name: str, key: Any = None) -> Any:
        """The content of a state: of one key as user code sees it, or else a dict by key.

        It is the value of a ValueState, a list for a ListState, a dict for a MapState.  A key is a value, a
        tuple if it has several columns, or a dict (required for a key that is NULL).

        >>> import millpond
        >>> def number(row, n=millpond.ValueState(int, default=0)):
        ...     n.value += 1
        >>> def pipeline(pond, words):
        ...     by_word = pond.stream("words", words).key_by("word")
        ...     by_word.process(number, {"n": int}, id="number").view("none")
        >>> harness = Harness(pipeline, {"words": {"word": str}})
        >>> harness.feed("words", {"word": "mill"}, {"word": "mill"})
        >>> _ = harness.epoch()
        >>> harness.state("number", "n"), harness.state("number", "n", "mill")
        ({'mill': 2}, 2)
        """
        state = state_inspection.state_spec(self.pond, step, name)
        found = state_inspection.state_by_key(self.pond, self._clock.at_us, step, name)
        if key is None:
            return found
        if state.kind == "broadcast":
            raise InvalidError(
                f"state {name!r} belongs to no key", hint="leave out key: it is one dict", step=step
            )
        wanted = self._key(step, key)
        return found[wanted] if wanted in found else state_inspection.nothing(state)

    @overload
    def timers(self, step: str) -> dict[Any, list[Timer]]: ...

    @overload
    def timers(self, step: str, key: Any) -> list[Timer]: ...

    def timers(self, step: str, key: Any = None) -> dict[Any, list[Timer]] | list[Timer]:
        """The timers that are set, as (name, at, clock) in the order of their times: of one key, or by key.

        >>> import millpond
        >>> class Reminder(millpond.Process):
        ...     def on_row(self, row, ctx):
        ...         ctx.set_timer("later", after=60, clock="processing")
        ...     def on_timer(self, timer, ctx):
        ...         return {"word": ctx.key.word}
        >>> def pipeline(pond, words):
        ...     stream = pond.stream("words", words).key_by("word")
        ...     stream.process(Reminder, {"word": str}, id="remind").view("reminded")
        >>> harness = Harness(pipeline, {"words": {"word": str}})
        >>> harness.feed("words", word="mill")
        >>> _ = harness.epoch()
        >>> [timer.at.isoformat() for timer in harness.timers("remind", "mill")]
        ['2024-01-01T00:01:00+00:00']
        """
        found = state_inspection.timers_by_key(self.pond, step)
        return found if key is None else found.get(self._key(step, key), [])

    def errors(self) -> list[dict[str, Any]]:
        """Rows that could not be processed: the step, the row as text, the reason.

        >>> harness.errors()
        []
        """
        return self._errors_seen().sorted()

    def late(self, step: str) -> list[dict[str, Any]]:
        """The late rows of a stream, or of a watermark step.

        >>> harness.late("words")
        []
        """
        return self._late_seen(step).sorted()

    def expect(self, view: str, rows: Sequence[Row | Any]) -> None:
        """Fail unless the view has these rows, in any order; columns that no row names are not compared.

        >>> harness.expect("counts", [{"word": "mill", "n": 2}])
        """
        if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
            raise InvalidError("expect() takes a list of rows", detail=f"got {rows!r}"[:200])
        seen = self._view_seen(view)
        whose = f"view {view!r}"
        wanted = []
        for row in rows:
            given = as_dict(row)
            fit = {name: fitted(value, name, seen.kinds, whose) for name, value in given.items()}
            wanted.append({name: ExpectedValue(show(value, seen.kinds[name])) for name, value in fit.items()})
        difference = seen.difference(wanted)
        if difference is not None:
            raise AssertionError(difference)

    # -- the same with types, for transcripts ------------------------------------------------

    def _view_seen(self, name: str) -> Seen:
        return state_inspection.table_seen(f"view {name!r}", self.pond.read(name))

    def _changes_seen(self, view: str) -> Seen:
        head = self.pond.epoch
        table = self.pond.diff(view, self._told.get(view, self._began), head)
        self._told[view] = head
        found = state_inspection.table_seen(f"the change of view {view!r}", table)
        each = [
            {**row, "_w": 1 if row["_w"] > 0 else -1} for row in found.rows for _ in range(abs(row["_w"]))
        ]
        kinds = {"_w": pa.int64(), **{n: k for n, k in found.kinds.items() if n != "_w"}}
        return Seen(found.what, kinds, each)

    def _state_seen(self, step: str, name: str) -> Seen:
        return state_inspection.state_seen(self.pond, self._clock.at_us, step, name)

    def _timers_seen(self, step: str) -> Seen:
        return state_inspection.timers_seen(self.pond, step)

    def _errors_seen(self) -> Seen:
        found = state_inspection.table_seen("the error rows", self.pond.errors())
        kinds = {n: k for n, k in found.kinds.items() if n != "weight"}
        each = [{n: row[n] for n in kinds} for row in found.rows for _ in range(row["weight"])]
        return Seen(found.what, kinds, each)

    def _late_seen(self, step: str) -> Seen:
        names = self.pond.plan.nodes
        found = step if f"{step}.watermark" not in names else f"{step}.watermark"
        return state_inspection.table_seen(f"the late rows of {step!r}", self.pond.late(found))

    def _fed_kinds(self, source: str) -> Mapping[str, pa.DataType]:
        """The columns of a source or table that can be fed."""
        return state_inspection.kinds_of(self._fed(source)[0])

    # -- inside --------------------------------------------------------------------------------

    def _give(self) -> None:
        """Pass everything that was prepared to its source or table, in order."""
        self._clock.at_us = self._now_us
        pending, self._pending = self._pending, []
        for name, what in pending:
            source = self._sources.get(name)
            if source is None:
                for row in what:  # the inbox preserves their order, each with its sign
                    change = self.pond.insert if row["_w"] > 0 else self.pond.delete
                    change(name, [{k: v for k, v in row.items() if k != "_w"}] * abs(row["_w"]))
            elif isinstance(what, EventTimeBound):
                source.push(what)
            elif source.append_only:
                source.push([{k: v for k, v in row.items() if k != "_w"} for row in what])
            else:
                source.push(what)

    def _fed(self, name: str) -> tuple[pa.Schema, bool]:
        """The columns of a source or a table, and whether its rows can be retracted."""
        if name in self._sources:
            return self._sources[name].schema, not self._sources[name].append_only
        tables = self._tables()
        if name in tables:
            return tables[name].columns, True
        known = [*self._sources, *tables]
        matches = difflib.get_close_matches(name, known, 1)
        raise InvalidError(
            f"no source or table named {name!r}",
            detail=f"there are {', '.join(known) or 'none'}",
            hint=f"did you mean {matches[0]!r}?" if matches else "name it in Harness(..., sources={...})",
        )

    def _tables(self) -> dict[str, InboxTable]:
        nodes = self.pond.plan.nodes.values()
        found = {n.step: n.operator.source for n in nodes if isinstance(n.operator, Scan)}
        return {step: source for step, source in found.items() if isinstance(source, InboxTable)}

    def _has_event_time(self, source: str) -> bool:
        fed: set[str] = set()
        for node in self.pond.plan.topological():
            if isinstance(node.operator, Scan):
                fed |= {node.step} if node.operator.source is self._sources[source] else set()
            elif not fed.isdisjoint(node.inputs):
                fed.add(node.step)
                if isinstance(node.operator, SetsWatermark):
                    return True
        return False

    def _key(self, step: str, key: Any) -> Any:
        """A key in the form used in dicts: the value, or a tuple; a dict names its columns."""
        node, operator = state_inspection.process_step(self.pond, step)
        kinds = state_inspection.kinds_of(self.pond.plan.shape(node.inputs[0]).schema)
        names = operator.key
        if isinstance(key, Mapping):
            given = dict(key)
        else:
            values = key if isinstance(key, tuple) else (key,)
            given = dict(zip(names, values, strict=False)) if len(values) == len(names) else {}
        if sorted(given) != sorted(names):
            raise InvalidError(
                f"this is no key of step {step!r}",
                detail=f"the key is ({', '.join(names)}), got {key!r}",
                hint="give its value, a tuple of values, or a dict",
                step=step,
            )
        fit = tuple(fitted(given[name], name, kinds, f"the key of {step!r}") for name in names)
        return fit[0] if len(fit) == 1 else fit


def as_dict(row: Any) -> dict[str, Any]:
    """A row as a dict, whatever its form."""
    if isinstance(row, Mapping):
        return dict(row)
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return dataclasses.asdict(row)
    named = getattr(row, "_asdict", None)
    if named is not None:
        return dict(named())
    raise InvalidError(
        "a row is a dict, a dataclass or a named tuple", detail=f"got {type(row).__name__} {row!r}"
    )


def _folder(path: str | os.PathLike[str]) -> Store:
    store = open_store(Path(path).expanduser().absolute().as_uri(), durable=False)
    if history.read_head(store) is not None:
        raise InvalidError(
            "there is a pond in this folder already",
            detail=str(path),
            hint="a harness begins with an empty one: take another folder, such as pytest's tmp_path",
        )
    return store


def _check_call(pipeline: Callable[..., Any], sources: Sequence[str]) -> None:
    """Refuse a pipeline that cannot be called with the pond and these sources."""
    try:
        inspect.signature(pipeline).bind(None, **dict.fromkeys(sources))
    except TypeError as error:
        named = ", ".join(["pond", *sources])
        raise InvalidError(
            f"{getattr(pipeline, '__name__', 'the pipeline')} cannot be called with ({named})",
            detail=f"its parameters are {inspect.signature(pipeline)}: {error}",
            hint="the first is the pond; the others are called like the sources given to the harness",
        ) from error
