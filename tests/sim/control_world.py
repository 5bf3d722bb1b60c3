"""The world of `world.py` under control: pauses, changed settings, sinks that come and go, requests sent again,
a volume that is full now and then.

What must hold besides: of all entries with one request id, one counts; what was acknowledged is in its table;
a sink that was detached and attached with a replay misses nothing; one that gathers epochs gets groups with
fixed ends; one that gets epochs at most once never gets one twice.  Clocks of processes differ by seconds.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.clock import Clock, ManualClock
from millpond.errors import UnavailableError
from millpond.operators.bag import Bag
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan, SinkNode, View
from millpond.plan.sink_settings import SinkSettings
from millpond.sources.inbox_table import SEQUENCE, InboxTable
from millpond.state import inbox
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import Data, NotWritableError, Put

from .world import FaultyStore, OnceSink, World

SKEW_US = 3_000_000
_NOTES = pa.schema([("id", pa.int64())])


@dataclass
class SkewedClock:
    """The clock of one machine."""

    true: ManualClock
    skew_us: int

    def now_us(self) -> int:
        return self.true.now_us() + self.skew_us


class NeverTwice(OnceSink):
    """A target that cannot tell whether it has an epoch already."""

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        if (pond, epoch) in self.shown:
            self.wrong.append(f"epoch {epoch} came twice")
        super().deliver(pond, epoch, delta)


class FillingStore(FaultyStore):
    """A volume that is full now and then: nothing can be written, and everything can be read."""

    def __init__(self, world: ControlWorld, base: MemoryStore) -> None:
        super().__init__(base, world.baton, world.rng, world.faults)
        self.world = world

    def put_new(self, name: str, data: Data) -> Put:
        if self.world.is_full:
            self.baton.pause()
            raise NotWritableError("no room to write", detail=name)
        return super().put_new(name, data)


class ControlWorld(World):
    is_full = False

    def __init__(self, seed: int, **options: Any) -> None:
        self.skews = random.Random(-seed - 1)
        self.sent: set[int] = set()  # notes that were acknowledged
        self.noted = 0
        self.retain = self.skews.choice([4, 16])
        super().__init__(seed, **options)
        self.clock.advance(SKEW_US)

    def clock_of_a_process(self) -> Clock:
        return SkewedClock(self.clock, self.skews.randint(-SKEW_US, SKEW_US))

    def _plan(self) -> Plan:
        plan = super()._plan()
        source = InboxTable(_NOTES)
        plan, scan = plan.with_node("notes_in", Scan(source, source.schema, False), ())
        plan, step = plan.with_node("notes", Bag(SEQUENCE), (scan,))
        plan = plan.with_view(View("notes", step, "notes/rows"))
        self.grouped, self.lossy = OnceSink(self.baton.pause), NeverTwice(self.baton.pause)
        gathers = SinkSettings(every_us=300_000)
        plan = plan.with_sink(SinkNode("grouped", "by_key", self.grouped, gathers))
        at_most_once = SinkSettings(guarantee="at_most_once", every_us=300_000)
        return plan.with_sink(SinkNode("lossy", "by_key", self.lossy, at_most_once))

    # -- actors -----------------------------------------------------------------------

    def faulty(self, base: MemoryStore | None = None) -> FaultyStore:
        return FillingStore(self, base or self.store)

    def run_disk(self) -> None:
        """Fills the volume, and makes room again."""
        while self.items_left > 0:
            for _ in range(self.rng.randint(20, 80)):
                self.baton.pause()
            self.is_full = True
            for _ in range(self.rng.randint(1, 12)):
                self.baton.pause()
            self.is_full = False

    def run_client(self) -> None:
        self.baton.spawn("disk", self.run_disk)
        self.baton.spawn("controls", self.run_controls)
        self.baton.spawn("notes", self.run_notes)
        super().run_client()

    def run_notes(self) -> None:
        """Sends rows with request ids, each perhaps several times, as a client does that hears no answer."""
        while self.items_left > 0:
            number, self.noted = self.noted, self.noted + 1
            request: dict[str, Any] = (
                {"client": "c", "batch": number} if number % 2 else {"request": f"{number}"}
            )
            for _ in range(self.rng.choice([1, 2, 3])):
                for _ in range(self.rng.randint(0, 15)):
                    self.baton.pause()
                try:
                    inbox.append(
                        self.faulty(), "rows", {"table": "notes_in", "rows": 1, **request}, _note(number)
                    )
                except UnavailableError:
                    continue
                self.sent.add(number)

    def run_controls(self) -> None:
        while self.items_left > 0:
            for _ in range(self.rng.randint(0, 25)):
                self.baton.pause()
            kind, args = self._any_command()
            try:
                self._command(kind, args)
                if kind == "detach" and self.rng.random() < 0.7:
                    for _ in range(self.rng.randint(0, 25)):
                        self.baton.pause()
                    self._command("attach", {"name": args["name"], "replay": True})
            except UnavailableError:
                continue

    def _any_command(self) -> tuple[str, dict[str, Any]]:
        sink = self.rng.choice(["out", "grouped", "lossy"])
        choices: list[tuple[str, dict[str, Any]]] = [
            ("settings", {"settings": {"paused": True}}),
            ("settings", {"settings": {"paused": False}}),
            ("settings", {"settings": {"paused": None, "epoch_rows_max": self.rng.choice([1, 2, None])}}),
            ("detach", {"name": sink, "pause": self.rng.random() < 0.5}),
            ("attach", {"name": sink, "replay": True}),
            ("compact", {}),
            ("gc", {"keep": self.rng.randint(1, 4)}),
            ("drop_savepoint", {"name": f"s{self.rng.randint(0, 2)}"}),
            ("clear_errors", {}),
        ]
        return self.rng.choice(choices)

    # -- what must hold -----------------------------------------------------------------

    def check_views(self, snapshot: Snapshot) -> None:
        super().check_views(snapshot)
        counts = Counter(self._notes(snapshot))
        assert all(n == 1 for n in counts.values()), f"epoch {snapshot.epoch}: notes came twice: {counts}"

    def _notes(self, snapshot: Snapshot) -> list[int]:
        (spec,) = self.plan.nodes["notes"].binding.tables
        return [r["id"] for r in snapshot.scan(spec, spec.schema.names).to_pylist()]

    def _settle(self) -> None:
        self.clock.advance(3 * SKEW_US)  # past the clock of every process
        for store in (self.store, *(child for child, _ in self.forks)):
            inbox.append(store, "settings", {"settings": {"paused": None}})
        super()._settle()

    def check_sinks(self, head: Manifest) -> None:
        want = self.expected(len(self.log.items))["by_key"]
        assert not [sink.wrong for sink in (self.sink, self.grouped, self.lossy) if sink.wrong]
        for name, sink in (("out", self.sink), ("grouped", self.grouped)):
            if name not in head.detached:
                assert sink.total(head.pond) == want, f"the changes of sink {name} do not add up to the view"
        if not self.rolled_back:
            snapshot = Snapshot(self.store, history.read_manifest(self.store, head.epoch), *self._readers())
            missing = self.sent - set(self._notes(snapshot))
            assert not missing, f"notes were acknowledged and are lost: {missing}"

    def _readers(self) -> tuple[Any, Any]:
        return self.workers[-1].pages, self.workers[-1].open_file


def _note(number: int) -> bytes:
    weighted = _NOTES.append(pa.field("_w", pa.int64()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, weighted) as writer:
        writer.write_table(pa.Table.from_pylist([{"id": number, "_w": 1}], schema=weighted))
    raw: bytes = sink.getvalue().to_pybytes()
    return raw
