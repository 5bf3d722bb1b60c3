"""Garbage: what no retained, pinned or forked manifest and no running job can need.

Law 6: a committed file is unlinked only then.  The floor was raised by a
commit before this runs; pins are read after it.  Only the token holder
collects, and it spares every file that a job of its own may still commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millpond.state.history import epochs, find_manifest
from millpond.state.inbox import PREFIX as INBOX
from millpond.state.inbox import entry_name
from millpond.state.listing import PageCache, live_runs
from millpond.state.manifest import Manifest, epoch_of, manifest_name
from millpond.state.pins import pins
from millpond.state.store import Store


@dataclass(frozen=True)
class Collection:
    manifests: int = 0
    files: int = 0


def collect(
    store: Store,
    head: Manifest,
    *,
    spare_from: int,
    token: int,
    now_us: int,
    pages: PageCache,
    between: Callable[[], None] = lambda: None,
) -> Collection:
    """Delete old manifests, pages, runs and inbox entries; `between` is called before each deletion."""
    pinned = set(head.savepoints.values())
    for found in pins(store):
        if found.expires_us is not None and found.expires_us < now_us:
            between()
            store.delete(found.name)
        else:
            pinned.add(found.epoch)
    known = epochs(store)
    kept = [e for e in known if e >= head.floor or e in pinned]
    # Every pinned epoch needs its parent too: its changes are told against it.
    kept = sorted(set(kept) | {e - 1 for e in pinned if e - 1 in set(known)})
    needed: set[str] = set()
    for epoch in kept:
        manifest = find_manifest(store, epoch)
        if manifest is not None:
            needed |= files_of(manifest, pages)
    deleted_manifests = deleted_files = 0
    doomed = [e for e in known if e not in set(kept) and e <= head.epoch]
    for epoch in doomed:
        between()
        store.delete(manifest_name(epoch))
        deleted_manifests += 1
    for name in _deletable(store, needed, spare_from, token):
        between()
        store.delete(name)
        deleted_files += 1
    _collect_inbox(store, kept, head, between)
    return Collection(deleted_manifests, deleted_files)


def files_of(manifest: Manifest, pages: PageCache) -> set[str]:
    """Every file of this pond that reading one epoch needs, pages included."""
    refs = [*live_runs(manifest.pages, manifest.recent, manifest.gone, pages), *manifest.added]
    return {r.file for r in refs if "!" not in r.file} | {p.name for p in manifest.pages}


def _deletable(store: Store, needed: set[str], spare_from: int, token: int) -> Iterable[str]:
    for name in store.list("runs/"):
        if name in needed:
            continue
        _, owner, rest = name.split("/", 2)
        if int(owner) < token or (int(owner) == token and int(rest.split("-", 1)[0]) < spare_from):
            yield name
    for name in store.list("pages/"):
        if name not in needed and epoch_of(name.split("-", 1)[0]) < spare_from:
            yield name


def _collect_inbox(store: Store, kept: list[int], head: Manifest, between: Callable[[], None]) -> None:
    """Entries that every kept epoch has executed, but the last of them (its number is the place of the next)."""
    oldest = head
    for epoch in kept[:1]:
        oldest = find_manifest(store, epoch) or head
    done = int(oldest.positions.get("inbox", 0))
    if done < 2:
        return
    for name in store.list(INBOX):
        if name >= entry_name(done - 1):
            break
        between()
        store.delete(name)
