"""Reads a view of another pond: its rows at one epoch, then the changes of every epoch.

Law: positions are epochs of the other pond.  The rows that were admitted up to a position add up to the rows
of the view at that epoch, whatever it inserted, updated, deleted or rolled back.  Runs are read in place;
nothing is copied, and the other pond need not be running.

The epoch of the position is pinned there (`upstream_pond`), so what was not read yet stays readable.  If the
epochs after it are no longer kept, the difference to the newest epoch is read instead of their changes.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from millpond import delta as deltas
from millpond.arguments.call_errors import checked
from millpond.arguments.durations import microseconds
from millpond.arguments.schemas import schema_of
from millpond.delta import WEIGHT
from millpond.errors import DataError, InvalidError
from millpond.masking import masked
from millpond.operators.source_traits import KeepsHistory, PollsForReader, RetractsOwnRows, StoredWithSchema
from millpond.plan.view_changes import OTHER_PROGRAM, ViewTable
from millpond.secret_references import check_references, resolved
from millpond.sources.source import Advance, Poll, Split
from millpond.sources.upstream_pond import (
    Hold,
    UpstreamPond,
    hold_for,
    shown_schema,
    unavailable,
    upstream,
)
from millpond.state.manifest.manifest import Manifest
from millpond.state.manifest.snapshot import HASH_MAX, Snapshot, clipped, difference
from millpond.state.store.location import uri_of
from millpond.state.store.store import MissingError, StoreError
from millpond.state.tables.repeat_by_weight import repeat_by_weight
from millpond.state.tables.table_scan import TableScan
from millpond.state.tables.table_spec import TableSpec

EPOCHS_MAX = 1_000  # epochs that one poll looks at
QUIET_EPOCHS = 256  # epochs without changes of the view, after which the position moves all the same
PIECE_ROWS = 250_000  # rows of a split
HASHES = HASH_MAX + 1

How = Literal["rows", "changes", "difference"]


@checked
@dataclass(frozen=True)
class PondSource(KeepsHistory, PollsForReader, RetractsOwnRows, StoredWithSchema):
    """The rows of a view of another pond, and their changes.

    `path` is the folder or the address of the pond, `options` are those of its store.  `schema` are the
    columns to read, in the types of the view; without it all columns that the view has now.  `append_only`
    says whether rows are only ever added; without it, what the other pond knows about its view.  `keep` is
    how long the other pond keeps what was not read while this one does not run.

    >>> import tempfile, millpond
    >>> folder = tempfile.mkdtemp()
    >>> with millpond.open(folder, engine="inline", durable=False) as pond:
    ...     _ = pond.table("orders", {"who": str, "n": int}).view("orders")
    ...     _ = pond.insert("orders", [{"who": "ann", "n": 2}])
    ...     _ = pond.drain()
    >>> source = PondSource(folder, "orders")
    >>> [split.rows for split in source.poll(None, None, 1000).splits]
    [1]
    """

    path: str | os.PathLike[str]  # kept as a uri
    view: str
    schema: pa.Schema = None
    append_only: bool = None  # type: ignore[assignment]  # found when the source is made
    keep: str = "1d"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        given = self.options.items() if isinstance(self.options, Mapping) else self.options
        options = tuple((str(k), str(v)) for k, v in given)
        for _, value in options:
            check_references(value)
        if not isinstance(self.view, str) or not self.view:
            raise InvalidError("a PondSource needs the name of a view", detail=f"got {self.view!r}")
        uri = uri_of(self.path)
        if masked(uri) != uri:
            raise InvalidError(
                "the address of a pond must not contain credentials",
                detail=f"got {masked(uri)}; addresses are stored in the catalog",
                hint='pass them as options, for example secret_access_key="${env:KEY}"',
            )
        if microseconds(self.keep) <= 0:
            raise InvalidError("keep must be positive", detail=f"got {self.keep!r}")
        object.__setattr__(self, "path", uri)
        object.__setattr__(self, "options", options)
        if self.schema is not None:
            object.__setattr__(self, "schema", schema_of(self.schema))
        if self.schema is None or self.append_only is None:
            self._look_up()

    def _look_up(self) -> None:
        with self._explained():
            pond = self._pond()
            head = pond.head()
            table = pond.need_table(head, self.view)
            if self.schema is None:
                object.__setattr__(self, "schema", shown_schema(table))
            if self.append_only is None:
                object.__setattr__(self, "append_only", pond.is_append_only(head, table))
            self._require_columns(table, head.epoch)

    def table(self, step: str) -> TableSpec | None:
        return None

    # -- in the driver --------------------------------------------------------

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        return self.poll_for(("", ""), position, seen, max_rows)

    def poll_for(self, reader: tuple[str, str], position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        with self._explained():
            pond = self._pond()
            hold = hold_for(str(self.path), self.view, reader, microseconds(self.keep))
            head = hold.head(pond)
            self._require_other_pond(head, reader[0])
            if position is None:
                position = {"pond": head.pond, "epoch": head.epoch, "hash": "0"}
            self._require_same_pond(head, position)
            if not hold.keep(pond, position["epoch"], position["epoch"]):
                raise self._lost(position["epoch"], head)
            pond.trim(head)
            if "hash" in position:
                return self._poll_rows(pond, head, position, max_rows)
            return self._poll_changes(pond, hold, head, position, max_rows)

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        for split in admitted:
            what = split.what
            if what["how"] != "rows" or int(what["h_max"]) >= HASH_MAX:
                position = {"pond": what["pond"], "epoch": what["to"]}
            else:
                following = str(int(what["h_max"]) + 1)
                position = {"pond": what["pond"], "epoch": what["to"], "hash": following}
        return Advance(position)

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        """The rows of the view at the position: what all admitted changes add up to."""
        if position is None:
            return
        with self._explained():
            pond = self._pond()
            manifest = pond.manifest(position["epoch"])
            if manifest is None:
                raise self._lost(position["epoch"], pond.head())
            last = int(position["hash"]) - 1 if "hash" in position else HASH_MAX
            if last >= 0:
                yield from self._row_splits(pond, manifest, 0, last, rows)

    def _poll_rows(
        self, pond: UpstreamPond, head: Manifest, position: Mapping[str, Any], max_rows: int
    ) -> Poll:
        """The rows with which the source begins, from the hash that was reached."""
        epoch = position["epoch"]
        manifest = head if epoch == head.epoch else pond.manifest(epoch)
        if manifest is None:
            raise self._lost(epoch, head)
        splits = self._row_splits(pond, manifest, int(position["hash"]), HASH_MAX, max_rows)
        return Poll(tuple(splits), backlog_rows=0)

    def _row_splits(
        self, pond: UpstreamPond, manifest: Manifest, first: int, last: int, max_rows: int
    ) -> Iterator[Split]:
        table = pond.need_table(manifest, self.view)
        self._require_columns(table, manifest.epoch)
        rows, size = _stored(pond, manifest, table)
        share = (last - first + 1) / HASHES
        rows, size = round(rows * share), round(size * share)
        for h_min, h_max in _hash_ranges(first, last, -(-rows // max(1, min(PIECE_ROWS, max_rows // 4)))):
            share = (h_max - h_min + 1) / (last - first + 1)
            yield self._split(
                manifest, "rows", -1, manifest.epoch, (h_min, h_max), rows * share, size * share
            )

    def _poll_changes(
        self,
        pond: UpstreamPond,
        hold: Hold,
        head: Manifest,
        position: Mapping[str, Any],
        max_rows: int,
    ) -> Poll:
        reached = int(position["epoch"])
        if head.epoch == reached:
            return Poll(backlog_rows=0)
        found = self._changes(pond, hold, head, reached, max_rows)
        if found is None:
            found = self._one_difference(pond, head, reached)
        splits, more = found
        if splits and not hold.keep(pond, reached, splits[-1].what["to"]):
            raise self._lost(reached, head)
        if hold.known is not None and splits and self._is_collected(splits, reached, hold.known):
            return self._poll_changes(pond, hold, hold.known, position, max_rows)
        return Poll(tuple(splits), backlog_rows=max_rows if more else 0)

    def _is_collected(self, splits: Sequence[Split], reached: int, head: Manifest) -> bool:
        """Were epochs whose changes are offered collected before they were pinned?"""
        return splits[0].what["how"] == "changes" and reached < head.floor

    def _changes(
        self, pond: UpstreamPond, hold: Hold, head: Manifest, reached: int, max_rows: int
    ) -> tuple[list[Split], bool] | None:
        """The changes of the next epochs; None if they are not all kept, or the view was not always there."""
        if reached < head.floor:
            return None
        wanted = max(1, min(PIECE_ROWS, max_rows // 4))
        after = reached if hold.quiet[0] != reached else hold.quiet[1]
        begun = after
        splits: list[Split] = []
        total = rows = size = 0
        epoch, last = after, min(head.epoch, after + EPOCHS_MAX)
        before = head if after == head.epoch else pond.manifest(after)
        for epoch in range(after + 1, last + 1):
            manifest = head if epoch == head.epoch else pond.manifest(epoch)
            if manifest is None or before is None:
                return None  # collected meanwhile
            table = pond.table(manifest, self.view)
            if table is None or not self._has_columns(table):
                return None  # it may be there again in the newest epoch
            found = _changed(pond, before, manifest, table, self.view)
            if found.rows > PIECE_ROWS:  # one large epoch: several tasks read it, in one epoch of ours
                if rows:
                    splits.append(self._split(head, "changes", begun, epoch - 1, None, rows, size))
                splits += self._large_epoch(head, epoch, found)
                total, rows, size, begun = total + found.rows, 0, 0, epoch
            elif found.rows:
                total, rows, size = total + found.rows, rows + found.rows, size + found.bytes
                if rows >= wanted:
                    splits.append(self._split(head, "changes", begun, epoch, None, rows, size))
                    rows, size, begun = 0, 0, epoch
            before = manifest
            if total >= max_rows:
                break
        if rows:
            splits.append(self._split(head, "changes", begun, epoch, None, rows, size))
        if not splits:
            hold.quiet = (reached, last)
            if last - reached >= QUIET_EPOCHS:  # so that the other pond need not keep the old epoch
                splits.append(self._split(head, "changes", reached, last, None, 0, 0))
        return splits, epoch < head.epoch

    def _large_epoch(self, head: Manifest, epoch: int, found: _Changed) -> list[Split]:
        ranges = list(_hash_ranges(0, HASH_MAX, -(-found.rows // PIECE_ROWS) if found.by_run else 1))
        share = 1 / len(ranges)
        made = [
            self._split(head, "changes", epoch - 1, epoch, each, found.rows * share, found.bytes * share)
            for each in ranges
        ]
        return [replace(split, with_next=True) for split in made[:-1]] + made[-1:]

    def _one_difference(self, pond: UpstreamPond, head: Manifest, reached: int) -> tuple[list[Split], bool]:
        """What has changed from the position to the newest epoch, in one epoch of ours."""
        table = pond.need_table(head, self.view)
        self._require_columns(table, head.epoch)
        then = pond.manifest(reached)
        if then is None:
            raise self._lost(reached, head)
        rows, size = _stored(pond, head, table)
        ranges = list(_hash_ranges(0, HASH_MAX, -(-rows // PIECE_ROWS)))
        if pond.table(then, self.view) != table:
            ranges = [(0, HASH_MAX)]  # another table may have other hashes
        share = 1 / len(ranges)
        made = [
            self._split(head, "difference", reached, head.epoch, each, rows * share, size * share)
            for each in ranges
        ]
        return [replace(split, with_next=True) for split in made[:-1]] + made[-1:], False

    def _split(
        self,
        head: Manifest,
        how: How,
        after: int,
        to: int,
        hashes: tuple[int, int] | None,
        rows: float,
        size: float,
    ) -> Split:
        h_min, h_max = hashes or (0, HASH_MAX)
        what = {"pond": head.pond, "how": how, "after": after, "to": to}
        what |= {"h_min": str(h_min), "h_max": str(h_max)}  # as text: JSON has no such numbers everywhere
        return Split(what, math.ceil(rows), int(size))

    # -- in a task --------------------------------------------------------------

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        what = split.what
        with self._explained():
            pond = self._pond()
            hashes = int(what["h_min"]), int(what["h_max"])
            match what["how"]:
                case "rows":
                    rows = self._rows_at(pond, what["to"], hashes, columns)
                case "difference":
                    rows = iter([self._between(pond, what["after"], what["to"], hashes)])
                case _:
                    rows = (self._between(pond, e - 1, e, hashes) for e in _epochs(what))
            for table in rows:
                if table.num_rows:
                    yield self._given(table, columns, what["to"])
            pond.trim(self._snapshot(pond, what["to"]).manifest)

    def _given(self, rows: pa.Table, columns: Sequence[str], epoch: int) -> pa.Table:
        """Rows with the columns that were asked for; with weights if they are not all 1."""
        weights = deltas.weights(rows)
        if (weights == 1).all():
            return rows.select(list(columns))
        if not self.append_only:
            return rows.select([*columns, WEIGHT])
        if (weights < 0).any():
            raise InvalidError(
                f"view {self.view!r} of pond {self.path} retracts rows, and this source only adds them",
                detail=f"{int((weights < 0).sum())} rows by epoch {epoch}; was that pond rolled back?",
                hint="PondSource(..., append_only=False), or append_only = 'false' in SQL, takes rows back",
            )
        return repeat_by_weight(rows, list(columns))

    def _rows_at(
        self, pond: UpstreamPond, epoch: int, hashes: tuple[int, int], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        snapshot = self._snapshot(pond, epoch)
        table = pond.need_table(snapshot.manifest, self.view)
        self._require_columns(table, epoch)
        runs = snapshot.runs(table.spec.name)
        for rows in TableScan(table.spec, runs, pond.open_file, table.columns, *hashes).batches():
            yield table.view.shown(rows)

    def _between(self, pond: UpstreamPond, after: int, to: int, hashes: tuple[int, int]) -> pa.Table:
        """What changed in the view from one epoch to another, with the declared columns."""
        now = self._snapshot(pond, to)
        table = pond.need_table(now.manifest, self.view)
        self._require_columns(table, to)
        names = [*self.schema.names, WEIGHT]
        if to == after + 1 and not _may_be_another(now.manifest, table):
            added = tuple(clipped(now.manifest.added, *hashes))
            part = pond.snapshot(replace(now.manifest, added=added))
            return table.view.shown(part.changes(table.spec, table.columns)).select(names)
        then = self._snapshot(pond, after)
        was = pond.table(then.manifest, self.view)
        if was is not None and self._is_same(was, table):
            found = difference(then, now, table.spec, table.columns, *hashes)
            return table.view.shown(found).select(names)
        parts = [_all_rows(now, table, names)]
        if was is not None:
            if not self._has_columns(was):  # what was admitted of it had these columns once
                raise self._other_columns(was, after)
            parts.append(deltas.negate(_all_rows(then, was, names)))
        return deltas.consolidate(deltas.concat(parts))

    def _is_same(self, was: ViewTable, now: ViewTable) -> bool:
        """Has the view the same table, perhaps with more columns, and the same columns under our names?"""
        if was.spec.name != now.spec.name or not set(was.columns) <= set(now.columns):
            return False
        stored, stored_now = (dict(zip(shown_schema(t).names, t.columns, strict=True)) for t in (was, now))
        return all(stored.get(name) == stored_now.get(name) for name in self.schema.names)

    def _snapshot(self, pond: UpstreamPond, epoch: int) -> Snapshot:
        manifest = pond.manifest(epoch)
        if manifest is None:
            raise self._lost(epoch, pond.head())
        return pond.snapshot(manifest)

    # -- checks -----------------------------------------------------------------

    def _pond(self) -> UpstreamPond:
        return upstream(str(self.path), {name: resolved(value) for name, value in self.options})

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of the other pond's storage are not errors of this one's."""
        try:
            yield
        except MissingError as error:
            raise InvalidError(
                f"pond {self.path} no longer has what was to be read from it",
                detail=error.message,
                hint="it was collected: its pins may have been deleted, or could not be written",
            ) from error
        except StoreError as error:
            raise unavailable(str(self.path), error) from error

    def _has_columns(self, table: ViewTable) -> bool:
        there = {f.name: f.type for f in shown_schema(table)}
        return all(there.get(f.name) == f.type for f in self.schema)

    def _require_columns(self, table: ViewTable, epoch: int) -> None:
        if not self._has_columns(table):
            raise self._other_columns(table, epoch)

    def _other_columns(self, table: ViewTable, epoch: int) -> InvalidError:
        there = ", ".join(f"{f.name} {f.type}" for f in shown_schema(table))
        wanted = ", ".join(f"{f.name} {f.type}" for f in self.schema)
        return InvalidError(
            f"view {self.view!r} of pond {self.path} has other columns than this source reads",
            detail=f"it has {there} in epoch {epoch}, and the source reads {wanted}",
            hint="give the view these columns again, or drop the source and create it again",
        )

    def _require_other_pond(self, head: Manifest, reader: str) -> None:
        if head.pond == reader:
            raise InvalidError(
                f"a pond cannot read its own view {self.view!r} as a source",
                detail=f"{self.path} is this pond",
                hint="use the view itself: SELECT … FROM view, or pond.view(name)",
            )

    def _require_same_pond(self, head: Manifest, position: Mapping[str, Any]) -> None:
        if head.pond != position["pond"]:
            raise InvalidError(
                f"{self.path} is another pond than the one that was read before",
                detail=f"pond {position['pond']} was read, and pond {head.pond} is there now",
                hint="was it created again, or restored from a backup? drop the source and create it again",
            )
        if head.epoch < position["epoch"]:
            raise DataError(
                f"pond {self.path} is older than what was read from it",
                detail=f"epoch {position['epoch']} was read, and the newest epoch is {head.epoch}",
                hint="restore its newest manifests, or drop the source and create it again",
            )

    def _lost(self, epoch: int, head: Manifest) -> InvalidError:
        return InvalidError(
            f"pond {self.path} no longer keeps epoch {epoch}, up to which it was read",
            detail=f"its oldest epoch is {head.floor}, its newest {head.epoch}; keep is {self.keep!r}",
            hint="this pond did not run for longer than `keep`, or it was rolled back or forked: drop the "
            "source and create it again",
        )


@dataclass(frozen=True)
class _Changed:
    """How much an epoch has changed in a view, at most."""

    rows: int
    bytes: int
    by_run: bool = True  # the changes are in runs that the epoch added


def _changed(
    pond: UpstreamPond, before: Manifest, manifest: Manifest, table: ViewTable, view: str
) -> _Changed:
    if _may_be_another(manifest, table):
        same = manifest.catalog == before.catalog or pond.table(before, view) == table
        rewrote = table.spec.name in manifest.metrics.get("rewrote", ())
        if manifest.kind == "rollback" or rewrote or not same:
            return _Changed(max(1, _stored(pond, manifest, table)[0]), 0, by_run=False)
    runs = [r for r in manifest.added if r.table == table.spec.name and r.kind == "delta"]
    return _Changed(sum(r.rows for r in runs), sum(r.bytes for r in runs))


def _may_be_another(manifest: Manifest, table: ViewTable) -> bool:
    """May the view have another table than in the epoch before, or changes that no run of the epoch has?"""
    return manifest.kind in OTHER_PROGRAM or table.spec.name in manifest.metrics.get("rewrote", ())


def _stored(pond: UpstreamPond, manifest: Manifest, table: ViewTable) -> tuple[int, int]:
    """The rows and bytes of a view, at most."""
    runs = pond.snapshot(manifest).runs(table.spec.name)
    return sum(r.rows for r in runs), sum(r.bytes for r in runs)


def _all_rows(snapshot: Snapshot, table: ViewTable, names: Sequence[str]) -> pa.Table:
    rows = snapshot.table(table.spec).scan(table.columns).select([*table.columns, WEIGHT])
    return table.view.shown(rows).select(list(names))


def _hash_ranges(first: int, last: int, count: int) -> Iterator[tuple[int, int]]:
    """
    >>> list(_hash_ranges(0, 9, 2))
    [(0, 4), (5, 9)]
    """
    count = max(1, count)
    edges = [first + (last - first + 1) * n // count for n in range(count + 1)]
    return ((low, high - 1) for low, high in pairwise(edges))


def _epochs(what: Mapping[str, Any]) -> range:
    return range(what["after"] + 1, what["to"] + 1)
