"""Another pond that this process reads: its manifests, its plans, the table of a view, and a pin on it.

Law 6: the pin of a reader protects the epoch that it has reached and those that it was offered, until they
were read and the reader has committed that.  The pin expires: a reader that never comes back does not make
the other pond keep its files for ever.
"""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from millpond.clock import SystemClock
from millpond.errors import InvalidError, nearest
from millpond.plan import codec
from millpond.plan.nodes import Plan
from millpond.plan.view_changes import ViewTable, view_table
from millpond.settings import Settings
from millpond.sources.unavailable import AwayError, away
from millpond.state.backup_record import refuse_backup
from millpond.state.manifest import history
from millpond.state.manifest.listing import PageCache
from millpond.state.manifest.manifest import Manifest, is_retained
from millpond.state.manifest.pins import DamagedPinError, Pin, let_go, pins, protects, try_pin
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.plan_file import read_plan
from millpond.state.runs.open_files import OpenFiles
from millpond.state.store.location import store_options
from millpond.state.store.store import Store, StoreError, open_store

PLANS_MAX = 16


class UpstreamPond:
    """The caches of one process for a pond that it only reads; reading runs no code that is stored in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._pages = PageCache(store)
        self._files = OpenFiles(store)
        self._tables: OrderedDict[tuple[str, str], ViewTable | None] = OrderedDict()

    def head(self, pinned: Manifest | None = None) -> Manifest:
        """The newest manifest; found from one that is pinned, it costs only what was committed since."""
        found = history.newer_head(self.store, pinned)
        if found is None:
            refuse_backup(self.store)
            raise away(
                "there is no pond to read from",
                f"no pond at {self.store.uri}",
                hint="run its pipeline once, or correct the path",
            )
        return found

    def manifest(self, epoch: int) -> Manifest | None:
        return history.find_manifest(self.store, epoch)

    def snapshot(self, manifest: Manifest) -> Snapshot:
        return Snapshot(self.store, manifest, self._pages, self._files.open)

    def open_file(self, name: str) -> Any:
        return self._files.open(name)

    def table(self, manifest: Manifest, view: str) -> ViewTable | None:
        """The table of a view at an epoch.  It has no feed: a reader gets the rows of the view itself."""
        key = (manifest.catalog or "", view)
        if key not in self._tables:
            found = view_table(self._plan(manifest), view)
            self._tables[key] = None if found is None else replace(found, feed=None)
            while len(self._tables) > PLANS_MAX:
                self._tables.popitem(last=False)
        return self._tables[key]

    def need_table(self, manifest: Manifest, view: str) -> ViewTable:
        found = self.table(manifest, view)
        if found is None:
            names = sorted(self._plan(manifest).views)
            raise InvalidError(
                f"pond {self.store.uri} has no view named {view!r}",
                detail=f"views are {', '.join(names) or 'none'}, in epoch {manifest.epoch}",
                hint=nearest(view, names) or "create it there, or drop the source here",
            )
        return found

    def is_append_only(self, manifest: Manifest, view: ViewTable) -> bool:
        return self._plan(manifest).shape(view.view.step).append_only

    def trim(self, manifest: Manifest) -> None:
        """Close files that an epoch does not name, and forget old pages."""
        self._pages.trim(len(manifest.pages))
        if self._files.crowded:
            self._files.trim(self.snapshot(manifest).listing.files())

    def _plan(self, manifest: Manifest) -> Plan:
        if manifest.catalog is None:
            return Plan()
        found: Plan = codec.read(read_plan(self.store, manifest.catalog))
        return found


def shown_schema(table: ViewTable) -> pa.Schema:
    """The columns of a view with the names that it shows."""
    fields = [table.spec.schema.field(name) for name in table.columns]
    schema: pa.Schema = table.view.shown(pa.schema(fields).empty_table()).schema
    return schema


@dataclass
class Hold:
    """The pin of one reader on a pond, in the process that polls; one at a time."""

    why: str  # names the reader in its pins
    keep_us: int
    pin: Pin | None = None
    renew_us: int = 0
    known: Manifest | None = None  # the newest manifest, found since the pin was written
    quiet: tuple[int, int] = (-1, -1)  # (position, epoch): nothing has changed from one to the other
    _old: list[Pin] | None = field(default=None)  # of processes before this one; None: not listed yet

    def head(self, pond: UpstreamPond) -> Manifest:
        self.known = pond.head(self._followed())
        return self.known

    def _followed(self) -> Manifest | None:
        """The manifest from which newer ones are found; manifests after one that is pinned stay."""
        expires_us = None if self.pin is None else self.pin.expires_us
        return self.known if expires_us is not None and SystemClock().now_us() < expires_us else None

    def keep(self, pond: UpstreamPond, first: int, last: int) -> bool:
        """Protect all epochs from `first` to `last`, and none before; False if the first one is gone."""
        now_us = SystemClock().now_us()
        held = self.pin
        if held is not None and held.epoch == first and held.last >= last and now_us < self.renew_us:
            return True
        old = [*self._older(pond), *([] if held is None else [held])]
        made = try_pin(pond.store, first, now_us + self.keep_us, last=last, why=self.why)
        try:
            # Read after the pin was written: this order makes it safe.
            head = pond.head(self._followed())
            kept = is_retained(head, first) or _is_protected(pond.store, first, made)
        except BaseException:
            let_go(pond.store, made)
            raise
        if not kept:
            let_go(pond.store, made)
            return False
        self.pin, self.renew_us, self.known, self._old = made, now_us + self.keep_us // 2, head, []
        for pin in old:
            let_go(pond.store, pin)
        return True

    def _older(self, pond: UpstreamPond) -> list[Pin]:
        """The pins that earlier processes of the same reader have left."""
        if self._old is None:
            try:
                self._old = [pin for pin in pins(pond.store) if pin.why == self.why]
            except DamagedPinError:  # nothing is collected while it is there
                return []
        return self._old


def _is_protected(store: Store, epoch: int, but: Pin | None) -> bool:
    """Does a pin protect an epoch, whoever wrote it?  The reader may be a fork of the pond that did."""
    now_us = SystemClock().now_us()
    others = [pin for pin in pins(store) if but is None or pin.name != but.name]
    return any(epoch in pin.epochs and protects(store, pin, now_us) for pin in others)


_holds: dict[tuple[int, str, str, str], Hold] = {}


def hold_for(uri: str, view: str, reader: tuple[str, str], keep_us: int) -> Hold:
    """The hold of this process for a reader: the id of its pond and the name of its step."""
    key = (os.getpid(), uri, view, "/".join(reader))
    if key not in _holds:
        _holds[key] = Hold(f"source {reader[0]}/{reader[1]} {view}", keep_us)
    _holds[key].keep_us = keep_us
    return _holds[key]


def upstream(uri: str, options: Mapping[str, Any]) -> UpstreamPond:
    """The pond of this process at an address."""
    return _upstream(os.getpid(), uri, tuple(sorted(options.items())))


@functools.lru_cache(maxsize=16)
def _upstream(pid: int, uri: str, options: tuple[tuple[str, Any], ...]) -> UpstreamPond:
    given = store_options(uri, Settings(), dict(options))
    given.pop(
        "wait_ms", None
    )  # a source that does not answer is polled again; it must not hold up the others
    return UpstreamPond(open_store(uri, **given))


def unavailable(uri: str, error: StoreError) -> AwayError:
    """An error of the other pond's storage; it is not an error of the pond that reads."""
    return away(
        "the other pond is unavailable",
        f"{error.message} (pond {uri})",
        hint="check that its storage can be reached from here; nothing that was committed is lost",
    )
