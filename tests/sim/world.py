"""A world in which everything that can go wrong does, by a seed.

One pond in memory, written by a coordinator that is killed at any storage
call and taken over, sometimes while the old one (a zombie) still lives; read
by readers, forked, rescaled, rolled back, compacted and collected meanwhile;
given another program, with views that come and go; over storage that fails before or after it acts, and answers twice.

What must hold, at every committed epoch and at the end:
every view equals the batch answer over the items that the epoch's position
accounts for; what waits for the clock is held or has come out, once, and never
before its time; sinks show each epoch once and whole; nobody meets a missing file.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.clock import Clock, ManualClock
from millpond.control.admission import Bounds
from millpond.engine.change.programs import program_of
from millpond.engine.coordinator.coordinator import Coordinator
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.program_changes import CHANGED_MEANWHILE
from millpond.engine.coordinator.protocol import BACKGROUND, Event, Halt, Instruction, Wait, Woke
from millpond.engine.coordinator.shell import Shell
from millpond.engine.coordinator.takeover import NO_POND
from millpond.engine.inline import InlineEngine
from millpond.engine.task.worker import Worker
from millpond.errors import ConflictError, InvalidError, MillpondError, UnavailableError
from millpond.kernels.aggregate_feeds import Agg, feeds_for
from millpond.operators.aggregate import Aggregate
from millpond.operators.bag import Bag
from millpond.operators.materialize import Materialize
from millpond.operators.scan import Scan
from millpond.plan import codec
from millpond.plan.change import without_views
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan, SinkNode, View
from millpond.serve.reader import Reader
from millpond.sources.memory import MemorySource
from millpond.state import inbox
from millpond.state.manifest import history
from millpond.state.manifest.fork import fork
from millpond.state.manifest.manifest import Manifest, is_retained
from millpond.state.manifest.pins import pin_plan, unpin
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.plan_file import digest
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import Data, Names, Put, PutUnknownError, StoreError
from tests.unit.engine.hold import hold

from .baton import Actor, Baton, Killed

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
WIDTH_US = 200_000
CATALOG = "catalog/sim"
PROGRAMS = (CATALOG, "catalog/more", "catalog/other")
VIEWS = ("by_key", "total", "by_v", "sizes")


class FaultyStore:
    """One actor's view of the storage: pauses, and fails as the die says."""

    def __init__(self, base: MemoryStore, baton: Baton, rng: random.Random, rate: float) -> None:
        self.base = base
        self.baton = baton
        self.rng = rng
        self.rate = rate

    @property
    def uri(self) -> str:
        return self.base.uri

    def put_new(self, name: str, data: Data) -> Put:
        self._before(f"put {name}")
        outcome = self.base.put_new(name, data)
        if self._dice():
            raise PutUnknownError("the call timed out after it had landed", detail=name)
        if self._dice(0.5):
            outcome = self.base.put_new(name, data)  # the network sent it twice: we hear the second answer
        self.baton.pause()
        return outcome

    def get(self, name: str) -> bytes:
        self._before(f"get {name}")
        return self.base.get(name)

    def map(self, name: str) -> pa.Buffer:
        self._before(f"map {name}")
        return self.base.map(name)

    def list(self, prefix: str, after: str | None = None) -> Names:
        self._before(f"list {prefix}")
        return self.base.list(prefix, after)

    def delete(self, name: str) -> None:
        self._before(f"delete {name}")
        self.base.delete(name)

    def size(self, name: str) -> int | None:
        self._before(f"size {name}")
        return self.base.size(name)

    def _before(self, what: str) -> None:
        self.baton.pause()
        if self._dice():
            raise StoreError("the storage did not answer", detail=what)

    def _dice(self, scale: float = 1.0) -> bool:
        return self.rng.random() < self.rate * scale


class OnceSink:
    """A target that stores (pond id, epoch) with the data."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self.shown: dict[tuple[str, int], Counter[tuple[Any, ...]]] = {}
        self.wrong: list[str] = []  # an error of a sink would only be one more failed delivery
        self.pause = pause

    def __reduce__(self) -> Any:
        return OnceSink, (int,)  # as a plan keeps it: the target, not the world around it

    def deliver(self, pond: str, epoch: int, delta: pa.Table) -> None:
        rows: Counter[tuple[Any, ...]] = Counter()
        for row in delta.to_pylist():
            weight = row.pop("_w")
            rows[tuple(row.values())] += weight
        self.pause()
        had = self.shown.get((pond, epoch))
        if had is not None and had != rows:
            self.wrong.append(f"epoch {epoch} was shown as {had}, now {rows}")
        self.shown[pond, epoch] = rows
        self.pause()

    def total(self, pond: str) -> Counter[tuple[Any, ...]]:
        sums: Counter[tuple[Any, ...]] = Counter()
        for (owner, _), rows in self.shown.items():
            if owner == pond:
                for row, weight in rows.items():
                    sums[row] += weight
        return Counter({r: w for r, w in sums.items() if w})


class World:
    retain = 4  # epochs

    def __init__(self, seed: int, *, items: int = 16, faults: float = 0.03) -> None:
        self.rng = random.Random(seed)
        self.baton = Baton(self.rng)
        self.store = MemoryStore()
        self.faults = faults
        self.items_left = items
        self.clock = ManualClock(1_000_000)
        self.log = MemorySource(SCHEMA, append_only=False)
        self.ticks = MemorySource(SCHEMA)  # rows that are held for a while
        self.alive: list[tuple[int, int]] = []
        self.sink = OnceSink(self.baton.pause)
        self.plan = self._plan()
        self.full = self._more(self.plan)
        self.plans = dict(
            zip(PROGRAMS, (self.plan, self.full, without_views(self.full, ["total", "sizes"])), strict=True)
        )
        for name, plan in self.plans.items():
            self.store.put_new(name, codec.dumps(plan))
        self.rolled_back = False  # was a rollback asked for?
        self.changed = 0  # epochs that changed the program
        self.workers: list[Worker] = []  # who must know the live parts of a plan
        self.forks: list[tuple[MemoryStore, int]] = []
        self.events: list[str] = []
        self.readers_done = 0
        self.kills = 0
        self.zombies = 0

    def _plan(self) -> Plan:
        plan, _ = Plan().with_node("in", Scan(self.log, SCHEMA, False), ())
        plan, _ = plan.with_node("rows", Bag(), ("in",))
        aggs = (Agg("n", "count"), Agg("s", "sum", "v"), Agg("lo", "min", "v"))
        by_key = Aggregate(("k",), aggs, feeds_for(aggs, False))
        plan, _ = plan.with_node("by_key", by_key, ("rows",) * len(by_key.feeds))
        total = (Agg("keys", "count"), Agg("all", "sum", "n"))
        over = Aggregate((), total, feeds_for(total, False))
        plan, _ = plan.with_node("total", over, ("by_key",) * len(over.feeds))
        plan = plan.with_view(View("by_key", "by_key", "by_key/groups"))
        plan = plan.with_view(View("total", "total", "total/groups"))
        plan, _ = plan.with_node("ticks", Scan(self.ticks, SCHEMA, True), ())
        plan, _ = plan.with_node("hold", hold(2 * WIDTH_US, WIDTH_US), ("ticks",))
        plan, _ = plan.with_node("out", Materialize(("k",)), ("hold",))
        plan = plan.with_view(View("out", "out", "out/rows"))
        return plan.with_sink(SinkNode("out", "by_key", self.sink))

    def _more(self, plan: Plan) -> Plan:
        """Views over what a table holds, and over what a view holds."""
        aggs = (Agg("n", "count"), Agg("hi", "max", "k"))
        by_v = Aggregate(("v",), aggs, feeds_for(aggs, False))
        plan, _ = plan.with_node("by_v", by_v, ("rows",) * len(by_v.feeds))
        counts = (Agg("keys", "count"),)
        sizes = Aggregate(("n",), counts, feeds_for(counts, False))
        plan, _ = plan.with_node("sizes", sizes, ("by_key",) * len(sizes.feeds))
        plan = plan.with_view(View("by_v", "by_v", "by_v/groups"))
        return plan.with_view(View("sizes", "sizes", "sizes/groups"))

    def plan_of(self, catalog: str | None) -> Plan:
        """A program with the sources of this world."""
        name = catalog or CATALOG
        if name not in self.plans:
            stored: Plan = codec.loads(self.store.get(name))
            nodes = {step: self.full.nodes[step] for step in stored.nodes}
            self.plans[name] = Plan(nodes, stored.views, self.full.sinks)
        return self.plans[name]

    # -- the oracle -----------------------------------------------------------------

    def expected(self, position: int) -> dict[str, Counter[tuple[Any, ...]]]:
        """What the views hold after the first items of the log, by plain Python."""
        bag: Counter[tuple[int, int]] = Counter()
        for item in self.log.items[:position]:
            for row in item.to_pylist():
                bag[row["k"], row["v"]] += row["_w"]
        groups: dict[int, list[int]] = {}
        for (k, v), weight in bag.items():
            assert weight >= 0
            groups.setdefault(k, []).extend([v] * weight)
        groups = {k: vs for k, vs in groups.items() if vs}
        by_key = Counter({(k, len(vs), sum(vs), min(vs)): 1 for k, vs in groups.items()})
        total = Counter({(len(groups), sum(len(v) for v in groups.values())): 1}) if groups else Counter()
        by_v: dict[int, list[int]] = {}
        for k, vs in groups.items():
            for v in vs:
                by_v.setdefault(v, []).append(k)
        return {
            "by_key": by_key,
            "total": total,
            "by_v": Counter({(v, len(ks), max(ks)): 1 for v, ks in by_v.items()}),
            "sizes": Counter({(n, c): 1 for n, c in Counter(map(len, groups.values())).items()}),
        }

    def check_snapshot(self, snapshot: Snapshot, view: str) -> None:
        catalog = snapshot.manifest.catalog
        assert catalog is None or self.store.size(catalog) is not None, (
            f"the plan of {snapshot.epoch} is gone"
        )
        plan = self.plan_of(snapshot.manifest.catalog)
        node = plan.views.get(view)
        if node is None:
            mine = {t.name for t in self.full.nodes[view].binding.tables}
            fill = snapshot.manifest.backfill
            mine -= set() if fill is None else set(fill.tables)
            assert not mine & set(snapshot.listing.tables()), f"{view} was dropped, and its runs are there"
            return
        shape = plan.shape(node.step)
        spec = next(t for t in plan.nodes[node.step].binding.tables if t.name == node.table)
        got = Counter(tuple(r.values()) for r in snapshot.scan(spec, shape.schema.names).to_pylist())
        want = self.expected(int(snapshot.manifest.positions.get("in", 0)))[view]
        assert got == want, f"epoch {snapshot.epoch} {view}: got {got}, want {want}"

    def check_views(self, snapshot: Snapshot) -> None:
        for view in VIEWS:
            self.check_snapshot(snapshot, view)
        self.check_held(snapshot)

    def check_refused(self, manifest: Manifest) -> None:
        """A change of the program is made, or was overtaken: nothing that it reads is ever gone."""
        told = manifest.metrics.get("refused", "")
        if "change refused" in told:
            assert CHANGED_MEANWHILE in told, f"epoch {manifest.epoch}: {told}"

    def check_plan(self, manifest: Manifest) -> None:
        """The program of every kept epoch is there, also of the one that was just committed."""
        head = history.read_head(self.store)
        assert head is not None
        if is_retained(head, manifest.epoch) and manifest.catalog is not None:
            assert self.store.size(manifest.catalog) is not None, f"epoch {manifest.epoch}: its plan is gone"

    def check_held(self, snapshot: Snapshot) -> None:
        """Every tick that came in is held, or came out when its time was over."""
        (held,) = self.plan.nodes["hold"].binding.tables
        (out,) = self.plan.nodes["out"].binding.tables
        waiting = snapshot.scan(held, held.schema.names).to_pylist()
        fired = snapshot.scan(out, out.schema.names).to_pylist()
        where = f"epoch {snapshot.epoch}: {len(waiting)} held, {len(fired)} out"
        taken = int(snapshot.manifest.positions.get("ticks", 0))
        assert sorted(r["k"] for r in [*waiting, *fired]) == list(range(taken)), where
        now_us = snapshot.manifest.now_us
        assert all((r["at"] // WIDTH_US + 1) * WIDTH_US <= now_us for r in fired), where
        if not self.rolled_back:  # a rollback brings back what was held, and time never falls
            assert all((r["at"] // WIDTH_US + 1) * WIDTH_US > now_us for r in waiting), f"{where}, some due"

    # -- actors -----------------------------------------------------------------------

    def faulty(self, base: MemoryStore | None = None) -> FaultyStore:
        return FaultyStore(base or self.store, self.baton, self.rng, self.faults)

    def coordinator(
        self, store: FaultyStore | MemoryStore, *, sinks: bool = True
    ) -> tuple[Coordinator, Shell]:
        worker = Worker(store)
        base = store.base if isinstance(store, FaultyStore) else store
        head = history.read_head(base)
        catalog = CATALOG if head is None or head.catalog is None else head.catalog
        plan = self.plan_of(catalog)
        for name, known in self.plans.items():
            worker.know_plan(name, known)
        self.workers.append(worker)
        clock = self.clock_of_a_process()
        program = replace(program_of(catalog, plan), tables=None, late=frozenset(), late_needed=frozenset())
        coordinator = Coordinator(
            pond=f"{self.rng.getrandbits(64):x}",
            program=program if sinks else replace(program, sinks=()),
            parallelism=None,
            policy=Policy(
                bounds=Bounds(rows_max=self.rng.choice([1, 3, 100]), rows_min=1),
                retain_epochs=self.retain,
                fan_in=3,
                collect_every=2,
                tries=50,
                unit_bytes=self.rng.choice([600, 1 << 20]),
            ),
            ids=lambda: f"{self.rng.getrandbits(64):016x}",
            now_us=clock.now_us(),
            based_on=NO_POND if head is None else catalog,
        )
        shell = Shell(worker, InlineEngine(worker), plan, cut(plan), catalog, clock, checks=True)
        return coordinator, shell

    def clock_of_a_process(self) -> Clock:
        return self.clock

    def run_coordinator(self, family: list[Actor]) -> None:
        """One coordinating process; its work beside the chain runs as actors that share its fate."""
        coordinator, shell = self.coordinator(self.faulty())
        heard: list[Event] = []
        chain: list[Instruction] = []

        def beside(instruction: Instruction) -> Callable[[], None]:
            def body() -> None:
                heard.append(shell.perform(instruction))

            return body

        def take(instructions: list[Instruction]) -> None:
            if coordinator.head is not None:
                if coordinator.head is not shell._head:
                    self.changed += coordinator.head.kind == "change"
                    self.check_refused(coordinator.head)
                    self.check_plan(coordinator.head)
                shell.committed(coordinator.head)
            for instruction in instructions:
                if isinstance(instruction, Halt):
                    raise instruction.error
                if isinstance(instruction, BACKGROUND):
                    family.append(self.baton.spawn(type(instruction).__name__, beside(instruction)))
                else:
                    chain.append(instruction)

        take(coordinator.start())
        while True:
            while heard:
                take(coordinator.handle(heard.pop(0)))
            assert len(chain) == 1, chain
            instruction = chain.pop()
            if isinstance(instruction, Wait):
                self.baton.pause()
                take(coordinator.handle(Woke()))
            else:
                take(coordinator.handle(shell.perform(instruction)))
            for name in list(coordinator.failed_sinks):
                coordinator.retry_sink(name)

    def run_reader(self) -> None:
        """Reads one epoch slowly; must see it right, whatever is collected meanwhile."""
        reader = Reader(Worker(self.faulty()), clock=self.clock)
        for view in VIEWS:
            try:
                with reader.pinned() as snapshot:
                    for _ in range(self.rng.randrange(4)):
                        self.baton.pause()
                    self.check_snapshot(snapshot, view)
                    self.readers_done += 1
            except UnavailableError as error:
                from millpond.state.store.store import MissingError

                assert not isinstance(error, MissingError), f"a reader met a missing file: {error}"
            except InvalidError:
                continue  # no pond yet
        with contextlib.suppress(UnavailableError):
            reader.close()

    def run_fork(self) -> None:
        child = MemoryStore()
        head = history.read_head(self.store)
        if head is None:
            return
        epoch = self.rng.randint(head.floor, head.epoch)
        try:
            fork(self.faulty(), self.faulty(child), epoch, pond=f"{self.rng.getrandbits(64):x}", now_us=0)
        except MillpondError:
            return
        self.forks.append((child, epoch))

    def run_client(self) -> None:
        """Writes the log and sends commands."""
        while self.items_left > 0:
            self.items_left -= 1
            for _ in range(self.rng.randint(0, 20)):
                self.baton.pause()
            self.log.items.append(self._item())
            self.ticks.push([{"k": len(self.ticks.items), "v": 0}])
            roll = self.rng.random()
            head = history.read_head(self.store)
            try:
                if roll < 0.15:
                    self._command("rescale", {"parallelism": self.rng.randint(1, 5)})
                elif roll < 0.22 and head is not None:
                    self.rolled_back = True
                    self._command("rollback", {"epoch": self.rng.randint(max(0, head.floor), head.epoch)})
                elif roll < 0.45:
                    self._change(self.rng.choice(PROGRAMS))
                elif roll < 0.53:
                    self._command("savepoint", {"name": f"s{self.rng.randint(0, 2)}"})
            except UnavailableError:
                continue

    def _change(self, program: str) -> None:
        """Ask for a program as `save_plan` does: under a name of its own, pinned until the entry is there."""
        raw = self.store.get(program)
        name = f"catalog/{self.rng.getrandbits(64):016x}-{digest(raw)}"
        self.plans[name] = self.plan_of(program)
        for worker in self.workers:
            worker.know_plan(name, self.plans[name])
        store = self.faulty()
        made = pin_plan(store, name, 1 << 60)
        store.put_new(name, raw)
        for _ in range(self.rng.choice([0, 0, 100])):  # a process that sleeps in between
            self.baton.pause()
        self._command("change", {"catalog": name})
        unpin(store, made)

    def _command(self, kind: str, args: dict[str, Any]) -> None:
        inbox.append(self.faulty(), kind, args)

    def _item(self) -> pa.Table:
        rows = []
        for _ in range(self.rng.randint(1, 4)):
            if self.alive and self.rng.random() < 0.35:
                k, v = self.alive.pop(self.rng.randrange(len(self.alive)))
                rows.append({"k": k, "v": v, "_w": -1})
            else:
                k, v = self.rng.randint(0, 4), self.rng.randint(-9, 9)
                self.alive.append((k, v))
                rows.append({"k": k, "v": v, "_w": 1})
        return pa.Table.from_pylist(rows, schema=pa.schema([*SCHEMA, pa.field("_w", pa.int64())]))

    # -- a run -------------------------------------------------------------------------

    def run(self, steps: int = 900) -> None:
        families: list[list[Actor]] = []

        def start() -> None:
            family: list[Actor] = []
            families.append(family)
            family.append(self.baton.spawn("coordinator", lambda: self.run_coordinator(family)))

        start()
        self.baton.spawn("client", self.run_client)
        for _ in range(steps):
            roll = self.rng.random()
            living = [f for f in families if not f[0].done]
            if roll < 0.004 or not living:
                for actor in living[0] if living else []:
                    actor.doomed = True
                    self.kills += 1
                start()
            elif roll < 0.006:
                self.zombies += 1
                start()  # and the old one does not know
            elif roll < 0.03:
                self.baton.spawn("reader", self.run_reader)
            elif roll < 0.034:
                self.baton.spawn("fork", self.run_fork)
            self.clock.advance(self.rng.randint(0, 50_000))
            self.baton.step()
        self.baton.finish()
        self._settle()
        for actor in self.baton.actors:
            if actor.error is not None and not _allowed(actor):
                raise actor.error

    def _settle(self) -> None:
        """No more faults: a last coordinator finishes the work, and everything is looked at."""
        self.items_left = 0
        coordinator, shell = self.coordinator(self.store)
        self._finish(coordinator, shell)
        head = coordinator.head
        assert head is not None
        for epoch in history.epochs(self.store):
            if epoch >= head.floor or epoch in head.savepoints.values():
                snapshot = shell.snapshot(history.read_manifest(self.store, epoch))
                self.check_views(snapshot)
        self.check_sinks(head)
        self._check_forks()

    def check_sinks(self, head: Manifest) -> None:
        want = self.expected(len(self.log.items))["by_key"]
        assert not self.sink.wrong
        assert self.sink.total(head.pond) == want, "the sink's changes do not add up to the view"

    def _finish(self, coordinator: Coordinator, shell: Shell) -> None:
        """Run without faults until nothing is left to do; all items must be in, and nothing held."""
        todo = coordinator.start()
        rests = 0
        for _ in range(4000):
            if coordinator.head is not None:
                self.check_refused(coordinator.head)
                shell.committed(coordinator.head)
            if all(isinstance(i, Wait) for i in todo) and not coordinator.busy_beside:
                if rests:
                    break
                rests += 1
                self.clock.advance(10 * WIDTH_US)
            beside = [i for i in todo if isinstance(i, BACKGROUND)]
            instruction = beside[0] if beside else todo[0]
            todo.remove(instruction)
            if isinstance(instruction, Halt):
                raise instruction.error
            event = Woke() if isinstance(instruction, Wait) else shell.perform(instruction)
            todo += coordinator.handle(event)
        else:
            raise AssertionError(f"the pond does not come to rest: {todo}")
        head = coordinator.head
        assert head is not None
        assert head.backfill is None, "what was being filled is not done"
        assert not [r for r in coordinator.live.values() if "!" in r.table], "what only a fill needs is there"
        assert head.positions.get("in", 0) == len(self.log.items), "items were lost"
        assert head.positions.get("ticks", 0) == len(self.ticks.items), "items were lost"
        assert coordinator.live.earliest("hold/held") is None, "what was due is still held"

    def _check_forks(self) -> None:
        """Every fork is as its parent was, and goes on by itself to where all items are in."""
        for child, _ in self.forks:
            coordinator, shell = self.coordinator(child, sinks=False)
            self.check_views(shell.snapshot(history.read_manifest(child, 0)))
            self._finish(coordinator, shell)
            assert coordinator.head is not None
            self.check_views(shell.snapshot(coordinator.head))


def _allowed(actor: Actor) -> bool:
    """A coordinator may end because another won, or because storage failed for too long."""
    return isinstance(actor.error, ConflictError | UnavailableError | Killed)
