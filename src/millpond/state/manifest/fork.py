"""Forks a pond: the first epoch of the new pond names the files of an epoch of another one.

No data is copied.  The refs of the child carry the parent's uri, and content intervals that end at zero,
before the child's own epochs.  The fork pins its parent before it reads, and the pin remains until the child
is abandoned.  The child gets its own pond id, and its sinks start detached: they receive nothing until a user
attaches them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from millpond.errors import ConflictError, InvalidError
from millpond.state import inbox
from millpond.state.manifest import history
from millpond.state.manifest.listing import PageCache, live_runs
from millpond.state.manifest.manifest import (
    PAGE_RUNS,
    Manifest,
    Page,
    encode_page,
    is_retained,
    manifest_name,
)
from millpond.state.manifest.pins import pin, unpin
from millpond.state.plan_file import read_plan
from millpond.state.runs import run_names
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.store import Put, PutUnknownError, Store, StoreError


def fork(
    parent: Store, child: Store, epoch: int, *, pond: str, now_us: int, sinks: Iterable[str] = ()
) -> Manifest:
    """Create `child` with the state of `parent` at `epoch`; returns its first manifest.

    `sinks` are the sinks of the epoch's program; they are detached.
    """
    made = pin(parent, epoch, None, why=f"fork {child.uri}")
    try:
        first = replace(_first(parent, child, epoch, pond, now_us), detached=dict.fromkeys(sinks, 0))
    except BaseException:
        unpin(parent, made)
        raise
    try:
        _commit(child, first)
    except (ConflictError, StoreError) as error:
        if not getattr(error, "unknown", False):  # else the child may exist, and needs its pin
            unpin(parent, made)
        raise
    return first


def _commit(child: Store, first: Manifest) -> None:
    """Write the child's first manifest; an outcome that is unknown is read back (law 2)."""
    for last in (False, False, True):
        try:
            if child.put_new(manifest_name(0), first.encode()) is Put.WON:
                return
        except PutUnknownError:
            if last:
                raise
        written = _read_back(child)
        if written is not None and written.nonce == first.nonce:
            return
        if written is not None:
            raise ConflictError(
                "there is a pond here already", detail=child.uri, hint="fork into an empty location"
            )
    raise PutUnknownError("cannot say whether the fork was written", detail=child.uri)


def _read_back(child: Store) -> Manifest | None:
    try:
        return history.find_manifest(child, 0)
    except StoreError as error:
        raise PutUnknownError("cannot say whether the fork was written", detail=str(error)) from error


def _first(parent: Store, child: Store, epoch: int, pond: str, now_us: int) -> Manifest:
    """Write the child's pages and catalog, and build its manifest; everything but the commit."""
    head = history.read_head(parent)
    if head is None or not is_retained(head, epoch):
        readable = "nothing" if head is None else f"epochs {head.floor} to {head.epoch}"
        raise InvalidError(
            f"epoch {epoch} cannot be forked", detail=f"the pond keeps {readable}", epoch=epoch
        )
    base = history.read_manifest(parent, epoch)
    unseen = () if base.backfill is None else base.backfill.tables  # a running backfill stays with the parent
    refs = [
        _taken_over(r, parent.uri, epoch)
        for r in live_runs(base.pages, base.recent, base.gone, PageCache(parent))
        if r.table not in unseen
    ]
    pages = []
    for start in range(0, len(refs), PAGE_RUNS):
        name = f"pages/{0:016d}-{os.urandom(8).hex()}"
        child.put_new(name, encode_page(refs[start : start + PAGE_RUNS]))
        pages.append(Page(name, len(refs[start : start + PAGE_RUNS])))
    if base.catalog is not None:
        child.put_new(base.catalog, read_plan(parent, base.catalog))
    return replace(
        base,
        pond=pond,
        epoch=0,
        token=1,
        nonce=os.urandom(16).hex(),
        parent_nonce=None,
        kind="fork",
        now_us=max(now_us, base.now_us),
        pages=tuple(pages),
        recent=(),
        gone=(),
        added=(),
        removed=(),
        cursors={},
        gathered={},
        paused=(),
        savepoints={},
        floor=0,
        backfill=None,
        restores=None,
        roots={**base.roots, base.pond: parent.uri},
        positions={k: v for k, v in base.positions.items() if k != inbox.POSITION},
        admitted={},
        metrics={"parent": base.pond, "parent_epoch": epoch},
    )


def _taken_over(ref: RunRef, uri: str, epoch: int) -> RunRef:
    """The ref of a run in the child: with the parent's uri, and older than every epoch of the child."""
    file = ref.file if run_names.is_foreign(ref.file) else run_names.in_pond(uri, ref.file)
    return replace(ref, file=file, kind="merge", lo=ref.lo - epoch, hi=ref.hi - epoch)
