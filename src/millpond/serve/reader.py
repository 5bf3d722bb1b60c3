"""Reads views of a pond at any retained epoch, without a coordinator.

A reader writes a pin for its epoch, then checks that the floor has not passed it; in this order no collector
can delete a file that is being read (law 6).  Every read sees exactly one epoch (law 2).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond import delta as deltas
from millpond.clock import Clock, SystemClock
from millpond.delta import WEIGHT
from millpond.engine.coordinator.append_sinks import refusal, sinks_that_would_retract
from millpond.engine.task.worker import Worker
from millpond.errors import DataError, InvalidError, UnavailableError, nearest
from millpond.integer_casts import require_integers
from millpond.kernels.value_errors import with_readable_reasons
from millpond.plan.emission_order import emission_order
from millpond.plan.nodes import Plan, View
from millpond.plan.step_versions import newest
from millpond.plan.tables import table_specs
from millpond.plan.view_changes import ViewTable, all_rows, view_changes, view_difference
from millpond.serve import state_inspection
from millpond.serve.pinned_epochs import PinnedEpochs
from millpond.serve.state_inspection import StateInfo
from millpond.state.backup_record import refuse_backup
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest, is_retained, manifest_name
from millpond.state.manifest.pins import Pin, let_go, protects, try_pin
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.store.location import is_local
from millpond.state.store.store import MissingError
from millpond.state.tables.error_rows import ERRORS_SPEC
from millpond.state.tables.table_spec import TableSpec
from millpond.valid_text import require_texts

PIN_TRIES = 8
CHANGES_EPOCHS, CHANGES_BYTES = 64, 64 << 20  # the size of changes that are read together


@dataclass(frozen=True)
class Delta:
    """The changes of one epoch in a view; `table` has the view's columns and `_w`."""

    epoch: int
    table: pa.Table


class Reader:
    def __init__(
        self,
        worker: Worker,
        *,
        clock: Clock | None = None,
        reader_ms: int = 600_000,
        store_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.store_options = dict(store_options or {})  # to open the store in another process
        self.reader_ms = reader_ms
        self.worker = worker
        self.store = worker.store
        self._clock = clock or SystemClock()
        self._reader_us = reader_ms * 1000
        self._pinned = PinnedEpochs(self.store, self._clock, self._reader_us)
        self._newest: Manifest | None = None
        self._is_local = is_local(self.store.uri)
        self._specs: dict[str, dict[str, TableSpec]] = {}
        self.epoch_rows: dict[int, dict[str, Any]] = {}  # a cache of `serve.system_relations`

    # -- epochs -------------------------------------------------------------------

    def head(self) -> Manifest:
        """The newest manifest; a second call costs only what was committed since.

        That needs a pinned epoch to start from: manifests after an epoch that is not pinned may be collected.
        """
        seen = known = self._newest
        if known is not None and not self._pinned.has(known.epoch):
            known = None
        if known is not None and self._is_local and self._is_newest(known):
            return known
        newer = history.newer_head(self.store, known)
        if newer is None:
            refuse_backup(self.store)
            raise InvalidError(
                "there is no pond here yet", detail=self.store.uri, hint="run the pipeline once: pond.drain()"
            )
        history.require_not_older(self.store, newer, seen)
        self._newest = newer
        return newer

    def _is_newest(self, known: Manifest) -> bool:
        """Is a manifest still there, and none after it?  Asking for names is quicker than reading nothing."""
        following, own = manifest_name(known.epoch + 1), manifest_name(known.epoch)
        return self.store.size(following) is None and self.store.size(own) is not None

    @contextlib.contextmanager
    def pinned(self, epoch: int | str | None = None, *, by: Pin | None = None) -> Iterator[Snapshot]:
        """A snapshot that stays readable until the block ends: the newest, an epoch, or a savepoint.

        `by` is a pin of another process: an epoch that it protects can be read even if it is below the floor.
        """
        for _ in range(PIN_TRIES):
            wanted = self.resolve(self.head(), epoch)
            snapshot = self._pinned.take(wanted, lambda wanted: self._open_retained(wanted, by))
            if snapshot is not None:
                try:
                    with self._explain_missing(wanted):
                        yield snapshot
                finally:
                    self._pinned.give_back(wanted)
                return
            if epoch is not None:
                break
        raise self._gone(wanted)

    def _gone(self, epoch: int) -> InvalidError:
        now = self.head()
        return InvalidError(
            f"epoch {epoch} is no longer kept",
            detail=f"the oldest epoch that can be read is {now.floor}, the newest {now.epoch}",
            hint="keep more history with retain_epochs, or make a savepoint before it is needed",
            epoch=epoch,
        )

    @contextlib.contextmanager
    def _explain_missing(self, first: int, last: int | None = None) -> Iterator[None]:
        """Explains a missing file: it was lost, or collected because no pin could be written."""
        with missing_is_damage(first if last is None else last):
            try:
                yield
            except MissingError as error:
                now = history.read_head(self.store)
                if now is None or is_retained(now, first):
                    raise
                raise UnavailableError(
                    f"epoch {first} was collected while it was being read",
                    detail=f"{error.message}; the oldest epoch that can be read is {now.floor} now",
                    hint="read again; a reader that may write to pins/ keeps its epoch from being collected",
                    epoch=first,
                ) from error

    def _open_retained(self, epoch: int, by: Pin | None = None) -> Snapshot | None:
        now = self.head()
        if not is_retained(now, epoch) and not self._is_protected(epoch, by):
            return None
        manifest = now if epoch == now.epoch else history.read_manifest(self.store, epoch)
        return Snapshot(self.store, manifest, self.worker.pages, self.worker.open_file)

    def _is_protected(self, epoch: int, by: Pin | None) -> bool:
        return by is not None and epoch in by.epochs and protects(self.store, by, self._clock.now_us())

    def pin_until_us(self) -> int:
        """The time at which a pin that is written now expires."""
        return self._clock.now_us() + self._reader_us

    def close(self) -> None:
        """Remove the pins of this reader."""
        self._pinned.close()

    def resolve(self, head: Manifest, epoch: int | str | None) -> int:
        """The number of an epoch that a user names by its number or a savepoint; None is the newest."""
        if epoch is None:
            return head.epoch
        if isinstance(epoch, str):
            if epoch not in head.savepoints:
                raise InvalidError(
                    f"no savepoint named {epoch!r}",
                    detail=f"savepoints are {', '.join(sorted(head.savepoints)) or 'none'}",
                    hint=nearest(epoch, head.savepoints),
                )
            return int(head.savepoints[epoch])
        if isinstance(epoch, bool) or not isinstance(epoch, int):
            raise InvalidError(
                "an epoch is a number or the name of a savepoint",
                detail=f"got {type(epoch).__name__} {epoch!r}",
            )
        number = int(epoch)
        if number > head.epoch or number < 0:
            raise InvalidError(
                f"there is no epoch {number} yet", detail=f"the newest epoch is {head.epoch}", epoch=number
            )
        return number

    # -- names ---------------------------------------------------------------------

    def plan_of(self, manifest: Manifest) -> Plan:
        if manifest.catalog is None:
            return Plan()
        return self.worker.description(manifest.catalog)

    def _view(self, manifest: Manifest, name: str) -> tuple[View, TableSpec, list[str]]:
        plan = self.plan_of(manifest)
        view = plan.views.get(name)
        if view is None:
            raise InvalidError(
                f"no view named {name!r}",
                detail=f"views are {', '.join(sorted(plan.views)) or 'none'}",
                hint=nearest(name, plan.views),
            )
        columns = view.stored_columns(plan.shape(view.step).schema.names)
        return view, self._specs_of(manifest)[view.table], columns

    def _specs_of(self, manifest: Manifest) -> dict[str, TableSpec]:
        key = manifest.catalog or ""
        if key not in self._specs:
            self._specs[key] = table_specs(self.plan_of(manifest))
        return self._specs[key]

    # -- reading ---------------------------------------------------------------------

    def read(self, view: str, *, epoch: int | str | None = None) -> pa.Table:
        with self.pinned(epoch) as snapshot:
            view_of, spec, columns = self._view(snapshot.manifest, view)
            return view_of.shown(snapshot.scan(spec, columns))

    def view_schema(self, view: str, *, epoch: int | str | None = None) -> pa.Schema:
        """The columns of a view and their types; no row is read."""
        with self.pinned(epoch) as snapshot:
            view_of, spec, columns = self._view(snapshot.manifest, view)
            fields = [spec.schema.field(c) for c in columns]
            return view_of.shown(pa.schema(fields).empty_table()).schema

    def rows_upper(self, view: str, *, epoch: int | str | None = None) -> int:
        """An upper bound of the rows that are stored for a view; no row is read."""
        with self.pinned(epoch) as snapshot:
            return snapshot.table(self._view(snapshot.manifest, view)[1]).count_rows_upper()

    def lookup(self, view: str, key: Any, *, epoch: int | str | None = None) -> pa.Table:
        """The rows of one key, or of many: a value, a dict, a list of them, or a table of keys."""
        with self.pinned(epoch) as snapshot:
            view_of, spec, columns = self._view(snapshot.manifest, view)
            stored_name = {shown: name for shown, name in view_of.columns}
            return view_of.shown(
                snapshot.lookup(spec, keys_table(spec, _with_stored_names(key, stored_name)), columns)
            )

    def diff(self, view: str, e1: int | str, e2: int | str) -> pa.Table:
        """What changed from epoch e1 to epoch e2, consolidated; backwards when e2 is before e1."""
        head = self.head()
        first, last = self.resolve(head, e1), self.resolve(head, e2)
        if first > last:
            return deltas.negate(self.diff(view, last, first))
        with self.pinned_range(first, last) as (before, after):
            apart = before.manifest.catalog != after.manifest.catalog  # the name may refer to another table
            if apart or first < self.head().floor:  # a savepoint: the epochs between may be collected
                found = view_difference(before, after, view, self.plan_of)
                if found is not None:
                    return found
            found_view, spec, columns = self._view(after.manifest, view)
            deltas_of = (view_changes(after.at(e), view, self.plan_of) for e in range(first + 1, last + 1))
            parts = [rows for rows in deltas_of if rows is not None]
            if not parts:
                return found_view.shown(_empty(spec, columns))
            return deltas.consolidate(deltas.concat(parts))

    def changes(
        self,
        view: str,
        since: int | str | None = None,
        *,
        follow: bool = False,
        poll_s: float = 0.1,
        check: Callable[[], None] = lambda: None,
    ) -> Iterator[Delta]:
        """The changes of each epoch after `since`, in order; with `follow` it waits for more.

        Before it waits it calls `check`, which raises if nothing more can come.

        Without `since` it begins with all rows of the view, as the first delta.  No epoch is pinned while the
        caller processes a delta: a caller that falls behind the retained epochs gets an error.
        """
        if since is None:
            with self.pinned() as snapshot:
                found_view, spec, columns = self._view(snapshot.manifest, view)
                order = emission_order(self.plan_of(snapshot.manifest), found_view.step, columns)
                rows = all_rows(snapshot, ViewTable(found_view, spec, columns, order=order))
                at = snapshot.epoch
            yield Delta(at, rows)
        else:
            at = self.resolve(self.head(), since)
        while True:
            head = self.head()
            if at >= head.epoch:
                if not follow:
                    return
                check()
                time.sleep(poll_s)
                continue
            last = min(head.epoch, at + CHANGES_EPOCHS)
            deltas = self._changes(view, at, last, head)
            at = deltas[-1].epoch if deltas else last
            yield from (delta for delta in deltas if delta.table.num_rows)

    def require_no_sink_retracts(self, head: Manifest, epoch: int) -> None:
        """Refuse a rollback to an epoch if an append-only sink has delivered later rows."""
        with self.pinned_range(epoch, head.epoch) as (then, now):
            retracting = sinks_that_would_retract(now, then, self.plan_of)
        if retracting:
            raise refusal(retracting, epoch)

    def _changes(self, view: str, at: int, last: int, head: Manifest) -> list[Delta]:
        """The changes of the epochs after `at`: at least one epoch, and about CHANGES_BYTES at most.

        Nothing if the view was created after `last`.
        """
        deltas: list[Delta] = []
        with self.pinned_range(at, last) as (_, after):
            if view not in self.plan_of(after.manifest).views:
                self._view(head, view)
                return []
            found_view, spec, columns = self._view(after.manifest, view)
            nothing = found_view.shown(_empty(spec, columns))
            size = 0
            while at < last and size < CHANGES_BYTES:
                at += 1
                rows = view_changes(after.at(at), view, self.plan_of)
                deltas.append(Delta(at, nothing if rows is None else rows))
                size += 0 if rows is None else rows.nbytes
        return deltas

    @contextlib.contextmanager
    def pinned_range(
        self, first: int, last: int, *, by: Pin | None = None
    ) -> Iterator[tuple[Snapshot, Snapshot]]:
        """The first and the last of a range of epochs; all of them stay readable until the block ends.

        `by` is a pin of another process, as in `pinned`.
        """
        made = try_pin(self.store, first, self.pin_until_us(), last=last)
        try:
            # Opened after the pin was written: this order makes it safe.
            before, after = self._open_retained(first, by), self._open_retained(last, by)
            if before is None or after is None:
                raise self._gone(first)
            with self._explain_missing(first, last):
                yield before, after
        finally:
            let_go(self.store, made)

    def errors(self, view: str | None = None, *, epoch: int | str | None = None) -> pa.Table:
        """Rows that could not be processed: step, row, reason, and how often; of one view's steps or of all.

        An error row is returned once, whatever its weight: a step may have failed on millions of copies.
        """
        with self.pinned(epoch) as snapshot:
            names = ERRORS_SPEC.schema.names
            rows = snapshot.table(ERRORS_SPEC).scan(names).select([*names, WEIGHT])
            rows = rows.rename_columns([*names, "weight"])
            if view is not None:
                view_of, _, _ = self._view(snapshot.manifest, view)
                steps = upstream(self.plan_of(snapshot.manifest), view_of.step)
                rows = rows.filter(pa.compute.is_in(rows.column("step"), pa.array(sorted(steps))))
            return with_readable_reasons(rows)

    def late(self, step: str, *, epoch: int | str | None = None) -> pa.Table:
        """Late rows that a watermark step stored."""
        with self.pinned(epoch) as snapshot:
            specs = self._specs_of(snapshot.manifest)
            step = newest(self.plan_of(snapshot.manifest).nodes, str(step))
            spec = specs.get(f"{step}/late")
            if spec is None:
                keep = [name.removesuffix("/late") for name in specs if name.endswith("/late")]
                with_suffix = f"{step}.watermark"
                raise InvalidError(
                    f"step {step!r} keeps no late rows",
                    detail=f"steps that keep late rows are {', '.join(keep) or 'none'}",
                    hint=f"did you mean {with_suffix!r}?" if with_suffix in keep else nearest(step, keep),
                )
            return snapshot.scan(spec, spec.schema.names)

    # -- state -----------------------------------------------------------------------

    def states(self, *, epoch: int | str | None = None) -> list[StateInfo]:
        with self.pinned(epoch) as snapshot:
            return state_inspection.state_infos(snapshot, self.plan_of(snapshot.manifest))

    def state(
        self, step: str, name: str, *, epoch: int | str | None = None, unpickle: bool = False
    ) -> pa.Table:
        """All live rows of a state at an epoch; `unpickle` shows pickled values as text."""
        with self.pinned(epoch) as snapshot:
            plan = self.plan_of(snapshot.manifest)
            spec = state_inspection.find_state(plan, newest(plan.nodes, str(step)), name)
            rows = pa.concat_tables(list(state_inspection.state_batches(snapshot, plan, spec)))
            return state_inspection.shown(spec, rows, self.worker.trust) if unpickle else rows

    def state_rows(self, step: str, name: str, *, epoch: int | str | None = None) -> list[dict[str, Any]]:
        """All live rows of a state as Python objects; untyped values are unpickled."""
        with self.pinned(epoch) as snapshot:
            plan = self.plan_of(snapshot.manifest)
            spec = state_inspection.find_state(plan, newest(plan.nodes, str(step)), name)
            batches = state_inspection.state_batches(snapshot, plan, spec)
            return [
                row for part in batches for row in state_inspection.as_rows(spec, part, self.worker.trust)
            ]

    def export(
        self, step: str, name: str, path: str | os.PathLike[str], *, epoch: int | str | None = None
    ) -> int:
        """Write a state to a Parquet file; returns the number of rows."""
        with self.pinned(epoch) as snapshot:
            plan = self.plan_of(snapshot.manifest)
            spec = state_inspection.find_state(plan, newest(plan.nodes, str(step)), name)
            facts = {"millpond.state": spec.name, "millpond.epoch": str(snapshot.epoch)}
            return state_inspection.export(state_inspection.state_batches(snapshot, plan, spec), path, facts)


@contextlib.contextmanager
def missing_is_damage(epoch: int) -> Iterator[None]:
    """Reports a missing file of a pinned epoch as damage: pinned files are never collected."""
    try:
        yield
    except MissingError as error:
        raise DataError(
            f"a file of epoch {epoch} is missing",
            detail=error.message,
            hint="restore it from a copy of the pond, or roll back to an epoch without it",
            epoch=epoch,
        ) from error


def upstream(plan: Plan, step: str) -> set[str]:
    steps = {step}
    for source in plan.nodes[step].inputs:
        steps |= upstream(plan, source)
    return steps


def keys_table(spec: TableSpec, key: Any) -> pa.Table:
    """Keys as a table of the key columns."""
    schema = pa.schema([spec.schema.field(k) for k in spec.key])
    require_texts(key, "the key")
    try:
        if isinstance(key, pa.Table):
            missing = [k for k in spec.key if k not in key.column_names]
            if missing:
                raise InvalidError(f"the keys lack column {missing[0]!r}", detail=f"the key is {spec.key}")
            return key.select(list(spec.key)).cast(schema)
        rows = [_key_row(spec, one) for one in (key if isinstance(key, list) else [key])]
        require_integers(rows, schema)
        return pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        shown = ", ".join(f"{f.name} {f.type}" for f in schema)
        raise InvalidError("the key is of another type", detail=f"the key is ({shown}): {error}") from error


def _with_stored_names(key: Any, names: Mapping[str, str]) -> Any:
    """Keys under the stored names of their columns."""
    if isinstance(key, pa.Table):
        return key.rename_columns([names.get(n, n) for n in key.column_names])
    if isinstance(key, list):
        return [_with_stored_names(one, names) for one in key]
    return {names.get(n, n): v for n, v in key.items()} if isinstance(key, Mapping) else key


def _key_row(spec: TableSpec, one: Any) -> Mapping[str, Any]:
    if isinstance(one, Mapping):
        missing = [k for k in spec.key if k not in one]
        if missing:
            raise InvalidError(f"the key lacks column {missing[0]!r}", detail=f"the key is {spec.key}")
        more = [k for k in one if k not in spec.key]
        if more:
            raise InvalidError(f"{more[0]!r} is not a column of the key", detail=f"the key is {spec.key}")
        return one
    values = tuple(one) if isinstance(one, Sequence) and not isinstance(one, str | bytes) else (one,)
    if len(values) != len(spec.key):
        raise InvalidError(f"the key has {len(spec.key)} columns", detail=f"{spec.key}, got {one!r}")
    return dict(zip(spec.key, values, strict=True))


def _empty(spec: TableSpec, columns: Sequence[str]) -> pa.Table:
    return pa.schema([*(spec.schema.field(c) for c in columns), pa.field(WEIGHT, pa.int64())]).empty_table()
