"""Garbage: what no retained, pinned or forked manifest and no running job can need.

Law 6: a committed file is unlinked only then.  The floor was raised by a
commit before this runs; pins are read after it.  Only the token holder
collects, and it spares every file that a job of its own may still commit.
One that was overtaken without knowing finds manifests gone that it must keep,
and deletes nothing.

A plan is needed by a manifest, by an entry that asks for it, and before that by
the pin of whoever saved it.  Its name is never used again, so what was found to be
needed by nobody stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millpond.errors import DataError
from millpond.state import inbox
from millpond.state.history import epochs, find_manifest
from millpond.state.inbox import PREFIX as INBOX
from millpond.state.inbox import entry_name
from millpond.state.listing import PageCache, live_runs
from millpond.state.manifest import Manifest, epoch_of, manifest_name
from millpond.state.pins import pins
from millpond.state.plan_file import plan_names
from millpond.state.store import MissingError, Store

Facts = dict[int, frozenset[str]]  # by epoch: the files that it added, the pages and plans that it names


@dataclass(frozen=True)
class Collection:
    manifests: int = 0
    files: int = 0
    bytes: int | None = None  # of the files; known where they were measured


@dataclass(frozen=True)
class Garbage:
    """What nobody can need any more, by name."""

    manifests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # runs and pages
    entries: tuple[str, ...] = ()  # of the inbox
    pins: tuple[str, ...] = ()  # that have run out
    plans: tuple[str, ...] = ()

    def size(self, store: Store) -> int:
        """The bytes of it; asks for every name."""
        return sum(
            store.size(name) or 0 for name in (*self.manifests, *self.files, *self.entries, *self.plans)
        )


def collect(
    store: Store,
    head: Manifest,
    *,
    spare_from: int,
    token: int,
    now_us: int,
    pages: PageCache,
    between: Callable[[], None] = lambda: None,
    facts: Facts | None = None,
    measure: bool = False,
) -> Collection:
    """Delete old manifests, pages, runs and inbox entries; `between` is called before each deletion.

    `facts` is kept by the caller from one collection to the next, so that each reads only what came since.
    """
    found = find_garbage(
        store, head, spare_from=spare_from, token=token, now_us=now_us, pages=pages, facts=facts
    )
    size = found.size(store) if measure else None
    for name in [*found.pins, *found.manifests, *found.files, *found.entries, *found.plans]:
        between()
        store.delete(name)
    return Collection(len(found.manifests), len(found.files) + len(found.plans), size)


def find_garbage(
    store: Store,
    head: Manifest,
    *,
    spare_from: int,
    token: int,
    now_us: int,
    pages: PageCache,
    facts: Facts | None = None,
) -> Garbage:
    """What a collection would delete; nothing is."""
    facts = {} if facts is None else facts
    # What needs a plan moves from a pin to an entry to a manifest: read in this order, none is missed.
    plans = _not_known(store, head, facts)
    pinned, followed, over, spared = _pinned(store, head, now_us)
    asked = _asked_for(store, head) if plans else set()
    known = epochs(store)
    stretch = [e for e in known if e >= head.floor]
    if stretch != list(range(head.floor, max(head.epoch, known[-1] if known else 0) + 1)):
        return Garbage(pins=over)  # a manifest is lost: its files are what a restored copy of it needs
    # Every pinned epoch needs its parent too: its changes are told against it.
    apart = sorted({e for p in pinned for e in (p - 1, p)} & {e for e in known if e < head.floor})
    needed = _needed(store, head, stretch, apart, pages, facts)
    if needed is None:
        return Garbage(pins=over)
    kept = {*stretch, *apart}
    doomed = [manifest_name(e) for e in known if e not in kept and e < followed]
    if asked is None:
        plans = []
    plans = [name for name in plans if name not in needed | spared | (asked or set())]
    if plans:  # a reader comes by these manifests, whose other files are gone
        passed = [find_manifest(store, e) for e in known if e not in kept and e >= followed]
        named = {m.catalog for m in passed if m is not None}
        plans = [] if None in passed else [name for name in plans if name not in named]
    files = _deletable(store, needed, spare_from, token)
    return Garbage(tuple(doomed), tuple(files), tuple(_executed(store, head)), over, tuple(plans))


def _not_known(store: Store, head: Manifest, facts: Facts) -> list[str]:
    """The plans that no manifest names, as far as the last collection knew."""
    known = {head.catalog}.union(*facts.values())
    return [name for name in plan_names(store) if name not in known]


def _asked_for(store: Store, head: Manifest) -> set[str] | None:
    """The plans that entries name which are perhaps not executed; None if one cannot be read."""
    found: set[str] = set()
    for number in inbox.numbers(store):
        if number < int(head.positions.get("inbox", 0)):
            continue
        try:
            entry = inbox.read(store, number)
        except (MissingError, DataError):
            return None
        if entry.kind == "change":
            found |= {name for name in (entry.args.get("catalog"), entry.args.get("base")) if name}
    return found


def _pinned(store: Store, head: Manifest, now_us: int) -> tuple[set[int], int, tuple[str, ...], set[str]]:
    """The epochs that somebody reads, forked or named, the oldest that a reader reads, pins that ran out, and
    the plans that somebody is about to name.

    A reader finds the newest epoch by going on from the one it holds: from there on no manifest may be
    missing, though their files may go.
    """
    found = set(head.savepoints.values())
    followed = head.floor
    over, plans = [], set()
    for pin in pins(store):
        if pin.expires_us is not None and pin.expires_us < now_us:
            over.append(pin.name)
        elif pin.plan is not None:
            plans.add(pin.plan)
        else:
            found.update(pin.epochs)
            if pin.expires_us is not None:
                followed = min(followed, pin.epoch)
    return found, followed, tuple(over), plans


def _needed(
    store: Store, head: Manifest, stretch: Sequence[int], apart: Sequence[int], pages: PageCache, facts: Facts
) -> set[str] | None:
    """The files of all kept epochs; None when one of them went meanwhile, so somebody else collects.

    Along a stretch an epoch has only files that the first of it has, or that one of it added.
    """
    for epoch in facts.keys() - set(stretch):
        del facts[epoch]
    needed = files_of(head, pages) | _plans_of(head)
    if head.filling is not None and head.filling.plan is not None:
        needed.add(head.filling.plan)
    for epoch in (*apart, *stretch):
        if epoch in facts and epoch != stretch[0]:
            needed |= facts[epoch]
            continue
        manifest = find_manifest(store, epoch)
        if manifest is None:
            return None
        if epoch <= stretch[0]:
            needed |= files_of(manifest, pages) | _plans_of(manifest)
        if epoch >= stretch[0]:
            facts[epoch] = frozenset(own_files(manifest) | _plans_of(manifest))
            needed |= facts[epoch]
    return needed


def _plans_of(manifest: Manifest) -> set[str]:
    filling = None if manifest.filling is None else manifest.filling.catalog
    return {name for name in (manifest.catalog, filling) if name is not None}


def own_files(manifest: Manifest) -> set[str]:
    """The files of this pond that an epoch added, and the pages that it names."""
    return {r.file for r in manifest.added if "!" not in r.file} | {p.name for p in manifest.pages}


def files_of(manifest: Manifest, pages: PageCache) -> set[str]:
    """Every file of this pond that reading one epoch needs, pages included."""
    live = live_runs(manifest.pages, manifest.recent, manifest.gone, pages)
    return {r.file for r in live if "!" not in r.file} | own_files(manifest)


def _deletable(store: Store, needed: set[str], spare_from: int, token: int) -> list[str]:
    found = []
    for name in store.list("runs/"):
        _, owner, rest = name.split("/", 2)
        ours = int(owner) == token and int(rest.split("-", 1)[0]) < spare_from
        if name not in needed and (int(owner) < token or ours):
            found.append(name)
    for name in store.list("pages/"):
        if name not in needed and epoch_of(name.split("-", 1)[0]) < spare_from:
            found.append(name)
    return found


def _executed(store: Store, head: Manifest) -> list[str]:
    """Entries that the oldest epoch of the stretch has executed, but the last of them.

    Its number is the place of the next.  A rollback, also to a savepoint, never goes back in the inbox.
    What a savepoint's epoch read stays: a replay of it reads it again.
    """
    oldest = find_manifest(store, head.floor) or head
    done = int(oldest.positions.get("inbox", 0))
    if done <= 1:
        return []
    read = _read_by_savepoints(store, head)
    return [name for name in store.list(INBOX) if name < entry_name(done - 1) and name not in read]


def _read_by_savepoints(store: Store, head: Manifest) -> set[str]:
    found: set[str] = set()
    for epoch in {e for e in head.savepoints.values() if e < head.floor}:
        manifest = find_manifest(store, epoch)
        for what in () if manifest is None else manifest.admitted.get("inbox", ()):
            last = int(what["entry"])
            found |= {entry_name(n) for n in range(int(what.get("made", last)), last + 1)}
    return found
