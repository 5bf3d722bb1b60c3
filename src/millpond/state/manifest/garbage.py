"""Finds and deletes files that no retained, pinned or forked manifest and no running job can need.

Law 6: no other committed file is deleted.  The floor is raised by a commit before this runs, and pins are
read after that commit.  Only the token holder collects, and it spares every file that one of its own jobs may
still commit.  A coordinator that was superseded without noticing finds that manifests it must retain are
gone, and deletes nothing.

A plan is needed by a manifest, by an inbox entry that names it, and before that by the pin of the process
that saved it.  Its name is never reused, so a plan that is no longer needed never becomes needed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millpond.errors import DataError
from millpond.state import inbox, request_ids
from millpond.state.inbox import PREFIX as INBOX
from millpond.state.inbox import entry_name
from millpond.state.manifest.history import epochs, find_manifest
from millpond.state.manifest.listing import PageCache, live_runs
from millpond.state.manifest.manifest import Manifest, epoch_of, manifest_name
from millpond.state.manifest.pins import pins
from millpond.state.plan_file import plan_names
from millpond.state.runs import run_names
from millpond.state.store.store import MissingError, Store

Facts = dict[int, frozenset[str]]  # by epoch: the files it added, and the pages and plans it names


@dataclass(frozen=True)
class Collection:
    manifests: int = 0
    files: int = 0
    bytes: int | None = None  # of the deleted files; None unless measured


@dataclass(frozen=True)
class Garbage:
    """The names of files that are no longer needed."""

    manifests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # runs and pages
    entries: tuple[str, ...] = ()  # inbox entries
    pins: tuple[str, ...] = ()  # expired pins
    plans: tuple[str, ...] = ()

    def size(self, store: Store) -> int:
        """The total size in bytes; asks the store for the size of every file."""
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

    The caller passes the same `facts` to every collection, so that each reads only what is new.
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
    """Find what a collection would delete, without deleting it."""
    facts = {} if facts is None else facts
    # A plan is named first by a pin, then by an entry, then by a manifest: reading in this order misses none.
    plans = _not_known(store, head, facts)
    pinned, followed, expired, spared = _pinned(store, head, now_us)
    asked = _asked_for(store, head) if plans else set()
    known = epochs(store)
    readable = [e for e in known if e >= head.floor]
    if readable != list(range(head.floor, max(head.epoch, known[-1] if known else 0) + 1)):
        return Garbage(pins=expired)  # a manifest is lost: a restored copy of it would need its files
    # A pinned epoch also needs its parent: its changes are computed against the parent.
    pinned_before = sorted({e for p in pinned for e in (p - 1, p)} & {e for e in known if e < head.floor})
    needed = _needed(store, head, readable, pinned_before, pages, facts)
    if needed is None:
        return Garbage(pins=expired)
    protected = {*readable, *pinned_before}
    doomed = [manifest_name(e) for e in known if e not in protected and e < followed]
    if asked is None:
        plans = []
    plans = [name for name in plans if name not in needed | spared | (asked or set())]
    if plans:  # readers still pass these manifests, whose other files are deleted
        passed = [find_manifest(store, e) for e in known if e not in protected and e >= followed]
        named = {m.catalog for m in passed if m is not None}
        plans = [] if None in passed else [name for name in plans if name not in named]
    files = _deletable(store, needed, spare_from, token)
    return Garbage(tuple(doomed), tuple(files), tuple(_executed(store, head)), expired, tuple(plans))


def _not_known(store: Store, head: Manifest, facts: Facts) -> list[str]:
    """The plans that no manifest named at the time of the last collection."""
    known = {head.catalog}.union(*facts.values())
    return [name for name in plan_names(store) if name not in known]


def _asked_for(store: Store, head: Manifest) -> set[str] | None:
    """The plans named by entries that may not be executed yet; None if an entry cannot be read."""
    asked: set[str] = set()
    for number in inbox.numbers(store):
        if number < inbox.next_entry(head):
            continue
        try:
            entry = inbox.read(store, number)
        except (MissingError, DataError):
            return None
        if entry.kind == "change":
            asked |= {name for name in (entry.args.get("catalog"), entry.args.get("base")) if name}
    return asked


def _pinned(store: Store, head: Manifest, now_us: int) -> tuple[set[int], int, tuple[str, ...], set[str]]:
    """Read the pins: the pinned epochs, the oldest one of a reader, the expired pins, and the pinned plans.

    A reader finds the newest epoch by following the manifests from the one it has pinned.  So no manifest
    after that one may be missing, although their files may be deleted.
    """
    pinned = set(head.savepoints.values())
    followed = head.floor
    expired, plans = [], set()
    for pin in pins(store):
        if pin.expires_us is not None and pin.expires_us < now_us:
            expired.append(pin.name)
        elif pin.plan is not None:
            plans.add(pin.plan)
        else:
            pinned.update(pin.epochs)
            if pin.expires_us is not None:
                followed = min(followed, pin.epoch)
    return pinned, followed, tuple(expired), plans


def _needed(
    store: Store,
    head: Manifest,
    readable: Sequence[int],
    pinned_before: Sequence[int],
    pages: PageCache,
    facts: Facts,
) -> set[str] | None:
    """The files of all retained epochs; None if one was deleted meanwhile, because another process collects.

    In a contiguous range of epochs, an epoch has only files that the first one has or that one of them added.
    """
    for epoch in facts.keys() - set(readable):
        del facts[epoch]
    needed = files_of(head, pages) | _plans_of(head)
    if head.backfill is not None and head.backfill.plan is not None:
        needed.add(head.backfill.plan)
    for epoch in (*pinned_before, *readable):
        if epoch in facts and epoch != readable[0]:
            needed |= facts[epoch]
            continue
        manifest = find_manifest(store, epoch)
        if manifest is None:
            return None
        if epoch <= readable[0]:
            needed |= files_of(manifest, pages) | _plans_of(manifest)
        if epoch >= readable[0]:
            facts[epoch] = frozenset(own_files(manifest) | _plans_of(manifest))
            needed |= facts[epoch]
    return needed


def _plans_of(manifest: Manifest) -> set[str]:
    planned = None if manifest.backfill is None else manifest.backfill.catalog
    return {name for name in (manifest.catalog, planned) if name is not None}


def own_files(manifest: Manifest) -> set[str]:
    """The files of this pond that an epoch added, and the pages that it names."""
    return {r.file for r in manifest.added if not run_names.is_foreign(r.file)} | {
        p.name for p in manifest.pages
    }


def files_of(manifest: Manifest, pages: PageCache) -> set[str]:
    """Every file of this pond, pages included, that is needed to read one epoch."""
    live = live_runs(manifest.pages, manifest.recent, manifest.gone, pages)
    return {r.file for r in live if not run_names.is_foreign(r.file)} | own_files(manifest)


def _deletable(store: Store, needed: set[str], spare_from: int, token: int) -> list[str]:
    deletable = []
    for name in store.list(run_names.PREFIX):
        owner, epoch = run_names.token_and_epoch(name)
        if name not in needed and (owner < token or (owner == token and epoch < spare_from)):
            deletable.append(name)
    for name in store.list("pages/"):
        if name not in needed and epoch_of(name.split("-", 1)[0]) < spare_from:
            deletable.append(name)
    return deletable


def _executed(store: Store, head: Manifest) -> list[str]:
    """The entries that the oldest retained epoch has executed, except the last of them.

    The number of the last one determines the number of the next entry.  A rollback, also to a savepoint,
    never moves the inbox back.  The entries that a savepoint's epoch read are retained: a replay of it reads
    them again.
    """
    oldest = find_manifest(store, head.floor) or head
    done = inbox.next_entry(oldest)
    if done <= 1:
        return []
    read = _read_by_savepoints(store, head)
    forgotten = request_ids.expired(store, inbox.next_entry(head))
    return forgotten + [
        name for name in store.list(INBOX) if name < entry_name(done - 1) and name not in read
    ]


def _read_by_savepoints(store: Store, head: Manifest) -> set[str]:
    needed: set[str] = set()
    for epoch in {e for e in head.savepoints.values() if e < head.floor}:
        manifest = find_manifest(store, epoch)
        for what in () if manifest is None else manifest.admitted.get("inbox", ()):
            last = int(what["entry"])
            needed |= {entry_name(n) for n in range(int(what.get("made", last)), last + 1)}
    return needed
