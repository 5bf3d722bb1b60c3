"""The tables of one epoch in a scratch database, changed statement by statement.

Law: every statement sees the tables as all earlier statements left them, and materialized views as of the
epoch.  A transaction that fails inside `all_or_nothing` leaves no trace.  The same statements over the same
epoch give the same rows (law 3).

A table is loaded under an internal name, with a position for each row; statements are rewritten to change
that table, and read a view of it under its own name.  Only rows that a statement can touch are loaded: those
of some keys, or all.  The rows of append-only tables are never loaded: they can only get more of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import ConflictError, InvalidError
from millpond.plan.objects import SqlIdentity, SqlObject
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.types import UTC, quoted
from millpond.sql.dml.assigned_numbers import (
    LAST,
    identity_columns,
    refuse_given,
    sequence_row,
    with_numbers,
)
from millpond.sql.dml.change_rows import Args, answer, zone_of
from millpond.sql.dml.conflicts import given_rows, same_key, shared_key, shown_key, updates_on_conflict
from millpond.sql.dml.merged_rows import MERGE_ACTION, twice_affected, with_action
from millpond.sql.dml.pushed_rows import push
from millpond.sql.dml.table_rules import check_rows, given_values, require_unique, stored_partners, uniques
from millpond.sql.reads.limits import ReadLimits
from millpond.sql.reads.scratch import PLACE, Scratch, returned
from millpond.sql.statements.select import needed_rows
from millpond.sql.text.parse import SqlFragment, Words, tokens_of
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.runs.missing_column import filled
from millpond.state.tables.table_spec import TableSpec

PREFIX = "__changeable_"  # before the name of a loaded table
CONFLICTS = "__conflicts"  # a table for the rows that ON CONFLICT can meet
INSERTED = 1 << 40  # the position of the first row that was not in the epoch

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Changeable:
    """A loaded table; positions below `INSERTED` are places in `before`."""

    target: SqlObject
    spec: TableSpec
    names: tuple[str, ...]  # stored columns; the last ones may be of dropped columns
    before: tuple[pa.Table, ...] = ()
    keys: frozenset[Key] | None = frozenset()  # the keys whose rows are loaded; None: all rows
    touched: tuple[pa.ChunkedArray, ...] = ()  # positions of rows that were changed or deleted
    appended: tuple[pa.Table, ...] = ()  # rows of an append-only table
    changed: bool = False

    @property
    def loaded_name(self) -> str:
        return f"{PREFIX}{self.target.name}"

    @property
    def loaded_object(self) -> SqlObject:
        return replace(self.target, name=self.loaded_name)

    @property
    def shown(self) -> int:
        """The number of table columns that still exist."""
        return len(self.target.columns)


@dataclass(frozen=True)
class Applied:
    """What a change did: the number of rows, and the result of RETURNING."""

    count: int
    names: tuple[tuple[str, str], ...] = ()
    rows: pa.Table | None = None


class ChangeableTables:
    def __init__(self, catalog: Catalog, snapshot: Snapshot, scratch: Scratch) -> None:
        self.catalog = catalog
        self.snapshot = snapshot
        self.scratch = scratch
        self._tables: dict[str, Changeable] = {}
        self._scans: dict[str, pa.Table] = {}
        self._next_place = INSERTED
        self._given_numbers: dict[str, tuple[SqlIdentity, int]] = {}  # by sequence, since `begin_entry`

    @contextmanager
    def all_or_nothing(self, texts: Iterable[str] = ()) -> Iterator[None]:
        """A transaction of changes with these texts: an exception undoes all of them."""
        saved = dict(self._tables)
        try:
            with self.scratch.all_or_nothing([*texts, *self._rules()]):
                yield
        except BaseException:
            self._tables = saved
            raise

    def _rules(self) -> Iterator[str]:
        """The expressions of the tables, which run with their changes."""
        for one in self.catalog.objects.values():
            if one.kind == "table":
                yield from (rule.check for rule in one.constraints if rule.check is not None)
                yield from (
                    text for c in one.columns for text in (c.default, c.generated) if text is not None
                )

    def begin_entry(self) -> None:
        """Another entry of the inbox begins."""
        self._given_numbers = {}

    def keep_numbers(self) -> None:
        """Let the numbers be used up that a refused entry was given, as in PostgreSQL.

        Otherwise one number that a row has already would refuse every later row.
        """
        for name, (identity, last) in self._given_numbers.items():
            with self.all_or_nothing(), self.scratch.registered_for_now():
                self._put(self.catalog.get(name, "table"), sequence_row(identity, last))

    def changed_tables(self) -> list[Changeable]:
        return [t for t in self._tables.values() if t.changed]

    def has_changed(self, names: Sequence[str]) -> bool:
        """Did an earlier statement change one of these tables?"""
        return any(t.changed and t.target.name in names for t in self._tables.values())

    # -- changes ------------------------------------------------------------------------

    def prefetch(self, changes: Sequence[Args]) -> None:
        """Load the rows of all keys that some changes name in one lookup per table."""
        wanted: dict[str, list[Key]] = {}
        for args in changes:
            found = self.catalog.find(str(args.get("name")))
            if found is not None and found.kind == "table" and args.get("keys") and not found.append_only:
                wanted.setdefault(found.name, []).extend(tuple(k) for k in args["keys"])
        for name, keys in wanted.items():
            self.load(self.catalog.get(name), keys)

    def apply(self, args: Args, given: pa.Table | None = None) -> Applied:
        """Execute one change; `given` are the rows of a change that has no text."""
        target = self._target(args)
        with self.scratch.registered_for_now():
            self.scratch.in_zone(zone_of(args)).at(int(args.get("now_us", 0)))
            if given is not None:
                return self._put(target, given, args)
            if args["verb"] == "insert":
                return self._insert(target, args)
            if args["verb"] == "merge":
                return self._merge(target, args)
            return self._touch(target, args)

    def push(self, args: Args, given: pa.Table) -> tuple[int, list[str]]:
        """Write rows that came without a statement; returns their number, and why others were refused."""
        target = self._target(args)
        spec = self.catalog.stored(target)
        assert spec is not None
        self.scratch.in_zone(UTC)
        names = [n for n in given.column_names if n != "_w"]
        schema = pa.schema([*(spec.schema.field(n) for n in names), pa.field("_w", pa.int64())])
        with self.scratch.registered_for_now():
            return push(self, target, _filled(given.cast(schema), target, spec))

    def delete(self, target: SqlObject, places: pa.ChunkedArray) -> None:
        """Delete rows of a loaded table by their positions."""
        if not len(places):
            return
        table = self._tables[target.name]
        listed = self.scratch.rows(pa.table({"place": places}))
        self.scratch.run(
            f"delete from {quoted(table.loaded_name)} where {quoted(PLACE)} in (select place from {listed})"
        )
        self._tables[target.name] = replace(table, touched=(*table.touched, places), changed=True)

    def _target(self, args: Args) -> SqlObject:
        for found in self.catalog.objects.values():
            if found.kind == "table" and found.scan == args["table"]:
                columns = [[c.name, c.stored_name] for c in found.columns]
                if found.name != args["name"] or args.get("columns", columns) != columns:
                    raise ConflictError(f"table {args['name']!r} was altered after the change was written")
                return found
        raise ConflictError(f"the pond has no table {args['name']!r} any more")

    def _touch(self, target: SqlObject, args: Args) -> Applied:
        keys = None if args.get("keys") is None else [tuple(k) for k in args["keys"]]
        table = self.load(target, keys)
        self._show(args, target)
        skip = 1 if args["verb"] == "update" else 2  # UPDATE, or DELETE FROM
        sql = _retargeted(args["sql"], skip, table.loaded_name, target.name)
        checks = args["verb"] == "update" and bool(target.constraints)
        needs_all = checks or args.get("moves") or args.get("returning")
        whole = f"{returned(target.columns)}, " if needs_all else ""
        rows = self.scratch.arrow(f"{sql} RETURNING {whole}{quoted(PLACE)}", shown=args["sql"])
        if args.get("moves") and target.key:
            self._check_moved(table, rows)
            table = self._tables[target.name]
        if rows.num_rows:
            touched = (*table.touched, rows.column(PLACE))
            self._tables[target.name] = replace(table, touched=touched, changed=True)
        if checks:
            self._check(target, rows)
        return self._applied(target, rows, args)

    def _check(self, target: SqlObject, rows: pa.Table) -> None:
        """Refuse a change whose rows, which are in the loaded table now, violate a rule of the table."""
        check_rows(self.scratch, target, rows)
        self._check_unique(target, rows)

    def _check_unique(self, target: SqlObject, rows: pa.Table) -> None:
        if any(rule.unique for rule in target.constraints):
            table = self._tables[target.name]
            require_unique(
                self.catalog, self.snapshot, self.scratch, target, table.loaded_name, table.keys, rows
            )

    def _check_moved(self, table: Changeable, rows: pa.Table) -> None:
        """Refuse an UPDATE after which two rows would have the same key."""
        target = table.target
        names = _held_key(target)
        self.load(target, _keys(rows, names))
        listed = self.scratch.rows(rows.select(names))
        same = " and ".join(f"c.{quoted(k)} = r.{quoted(h)}" for k, h in zip(target.key, names, strict=True))
        listed_key = ", ".join(f"r.{quoted(h)}" for h in names)
        found = self.scratch.arrow(
            f"select {listed_key} from {quoted(table.loaded_name)} c, (select distinct * from {listed}) r "
            f"where {same}"
        )
        twice = shared_key(found)
        if twice is not None:
            raise same_key(target, twice)

    def _merge(self, target: SqlObject, args: Args) -> Applied:
        """MERGE: its new rows have no position yet, so they are taken out and added again with one."""
        self._show(args, target)
        keys: list[Key] | None = None
        if args.get("source_keys") is not None:
            found = self.scratch.arrow(args["source_keys"], shown=args["sql"])
            keys = [k for k in _keys(found, found.column_names) if None not in k]
        table = self.load(target, keys)
        sql = _retargeted(args["sql"], 2, table.loaded_name, target.name)
        listed = f"{returned(target.columns)}, {quoted(PLACE)}, {MERGE_ACTION}"
        try:
            rows = self.scratch.arrow(f"{sql} RETURNING {listed}", shown=args["sql"])
        except InvalidError as error:
            raise twice_affected(error) from error
        is_new = pa.compute.equal(rows[MERGE_ACTION], "INSERT")
        old, fresh = rows.filter(pa.compute.invert(is_new)), rows.filter(is_new)
        if old.num_rows:
            table = replace(table, touched=(*table.touched, old.column(PLACE)), changed=True)
            self._tables[target.name] = table
        if fresh.num_rows:
            self.scratch.run(f"delete from {quoted(table.loaded_name)} where {quoted(PLACE)} = -1")
            names = [c.stored_name for c in target.columns]
            schema = pa.schema([table.spec.schema.field(n) for n in names])
            refuse_given(target, fresh)
            numbered = self.numbered(target, fresh.select(names).cast(schema))
            self._add(self._tables[target.name], numbered)
            actions = [fresh.column(PLACE), fresh.column(MERGE_ACTION)]
            numbered = pa.table([*numbered.columns, *actions], names=[*names, PLACE, MERGE_ACTION])
            rows = pa.concat_tables([old.cast(numbered.schema), numbered])
        kept = rows.filter(pa.compute.not_equal(rows[MERGE_ACTION], "DELETE"))
        if target.key:
            self._check_moved(self._tables[target.name], kept)
        if target.constraints:
            self._check(target, kept)
        return self._applied(target, rows, args)

    def _insert(self, target: SqlObject, args: Args) -> Applied:
        self._show(args, target)
        rows = given_rows(self.scratch, target, args["sql"])
        if args.get("conflict"):
            rows = self._without_conflicts(target, args, rows)
        return self._put(target, rows, args)

    def _without_conflicts(self, target: SqlObject, args: Args, given: pa.Table) -> pa.Table:
        """The rows that ON CONFLICT inserts or updates."""
        by_rule = tuple(args.get("conflict_key") or ())
        met = replace(target, key=by_rule or target.key)  # where its key is what the rows meet in
        names = _held_key(met)
        if updates_on_conflict(args["sql"]) and (twice := shared_key(given.select(names))) is not None:
            raise InvalidError(
                "ON CONFLICT DO UPDATE command cannot affect row a second time",
                detail=f"two rows of the statement have the key {shown_key(met, twice)}",
            )
        if target.append_only:
            kept = self._new_keys(target, given)
            return kept if kept is not None else given
        table = self.load(target, self._partners(target, met, given) if by_rule else _keys(given, names))
        self.scratch.table(replace(met, name=CONFLICTS), key=True, places=bool(by_rule))
        place = f", {quoted(PLACE)}" if by_rule else ""
        listed = ", ".join(quoted(c.name) for c in target.columns if c.generated is None) + place
        keys = self.scratch.rows(given.select(names))
        same = " and ".join(f"c.{quoted(k)} = r.{quoted(h)}" for k, h in zip(met.key, names, strict=True))
        self.scratch.run(
            f"insert into {quoted(CONFLICTS)} ({listed}) select {listed} from {quoted(table.loaded_name)} c "
            f"where exists (from {keys} r where {same})"
        )
        sql = _retargeted(args["sql"], 2, CONFLICTS, target.name)
        rows = self.scratch.arrow(f"{sql} RETURNING {returned(target.columns)}{place}", shown=args["sql"])
        if not by_rule:
            return rows
        places = rows.column(PLACE)
        self.delete(target, places.filter(pa.compute.greater_equal(places, 0)))
        return rows.drop_columns([PLACE])

    def _partners(self, target: SqlObject, met: SqlObject, given: pa.Table) -> list[Key] | None:
        """The keys of the stored rows with the unique values of given ones; None without a primary key."""
        if not target.key:
            return None
        names = tuple(_held_key(met))
        rule = next(name for name, columns in uniques(target) if columns == names)
        values = given_values(given, names)
        found = stored_partners(self.catalog, self.snapshot, target, rule, names, values)
        return _keys(found, _held_key(target))

    def _put(self, target: SqlObject, rows: pa.Table, args: Args | None = None) -> Applied:
        """Insert rows; a row replaces the one with the same primary key."""
        spec = self.catalog.stored(target)
        assert spec is not None
        count = rows.num_rows
        rows = rows.cast(pa.schema([spec.schema.field(n) for n in rows.column_names]))
        if target.is_checked:
            return self._put_checked(target, rows, args or {})
        applied = Applied(count) if args is None else self._applied(target, rows, args)
        if not count:
            return applied
        self.write(target, rows)
        return applied

    def _put_checked(self, target: SqlObject, rows: pa.Table, args: Args) -> Applied:
        """Insert rows into a table with constraints or identity columns."""
        if not (args.get("overriding") or args.get("conflict")):
            refuse_given(target, rows)
        lacking = {
            c.stored_name for c, _ in identity_columns(target) if rows.column(c.stored_name).null_count
        }
        numbered = self.numbered(target, rows)
        if lacking & set(_held_key(target)) and not target.append_only:
            self._refuse_taken(target, rows, numbered, lacking)
        applied = self._applied(target, numbered, args)
        if numbered.num_rows:
            check_rows(self.scratch, target, numbered)
            self.write(target, numbered)
            self._check_unique(target, _last_of_each_key(target, numbered))
        return applied

    def numbered(self, target: SqlObject, rows: pa.Table) -> pa.Table:
        """Assign numbers to the rows that have NULL in an identity column."""
        for column, identity in identity_columns(target):
            if not rows.column(column.stored_name).null_count:
                continue
            sequence = self.catalog.get(identity.sequence, "table")
            table = self.load(sequence, [(identity.sequence,)])
            found = self.scratch.arrow(f"select {quoted(LAST)} from {quoted(table.loaded_name)}")
            last = found.column(0)[0].as_py() if found.num_rows else None
            rows, last = with_numbers(rows, column, identity, last)
            assert last is not None
            self._given_numbers[identity.sequence] = (identity, last)
            self._put(sequence, sequence_row(identity, last))
        return rows

    def _refuse_taken(
        self, target: SqlObject, given: pa.Table, numbered: pa.Table, lacking: set[str]
    ) -> None:
        """Refuse a number that another row has: a row that gave its number itself is not replaced."""
        mine = numbered.filter(pa.compute.is_null(given.column(next(iter(lacking)))))
        names = _held_key(target)
        keys = _keys(mine, names)
        table = self.load(target, keys)
        listed = self.scratch.rows(mine.select(names))
        same = " and ".join(f"c.{quoted(k)} = r.{quoted(h)}" for k, h in zip(target.key, names, strict=True))
        shown = ", ".join(f"r.{quoted(h)}" for h in names)
        found = self.scratch.arrow(
            f"select {shown} from {quoted(table.loaded_name)} c, {listed} r where {same}"
        )
        if found.num_rows:
            raise same_key(target, _keys(found, names)[0])

    def write(self, target: SqlObject, rows: pa.Table) -> None:
        """Add rows to the loaded table, in place of those with the same primary key."""
        if not rows.num_rows:
            return
        if target.append_only:
            kept = self._new_keys(target, rows) if target.key else rows
            table = self._table(target)
            appended = (*table.appended, rows if kept is None else kept)
            self._tables[target.name] = replace(table, appended=appended, changed=True)
            return
        if not target.key:
            self._add(self.load(target, []), rows)
            return
        names = _held_key(target)
        rows = _last_of_each_key(target, rows)
        table = self.load(target, _keys(rows, names))
        listed = self.scratch.rows(rows.select(names))
        same = " and ".join(
            f"c.{quoted(k)} is not distinct from r.{quoted(h)}"
            for k, h in zip(target.key, names, strict=True)
        )
        replaced = self.scratch.arrow(
            f"delete from {quoted(table.loaded_name)} c using {listed} r where {same} "
            f"returning c.{quoted(PLACE)} as {quoted(PLACE)}"
        )
        self._add(replace(table, touched=(*table.touched, replaced.column(PLACE))), rows)

    def _add(self, table: Changeable, rows: pa.Table) -> None:
        places = pa.array(np.arange(self._next_place, self._next_place + rows.num_rows))
        self._next_place += rows.num_rows
        self.scratch.insert_rows(table.loaded_object, rows, places)
        self._tables[table.target.name] = replace(table, changed=True)

    def _new_keys(self, target: SqlObject, rows: pa.Table) -> pa.Table:
        """The first row of each key that an append-only table does not have."""
        spec, names = self.catalog.stored(target), _held_key(target)
        assert spec is not None
        keys = _keys(rows, names)
        wanted = rows.select(names).cast(pa.schema([spec.schema.field(n) for n in names]))
        there = set(_keys(self.snapshot.lookup(spec, wanted, names), names))
        for part in self._table(target).appended:
            there.update(_keys(part, names))
        first: dict[Key, int] = {}
        for n, key in enumerate(keys):
            if key not in there:
                first.setdefault(key, n)
        return rows.take(pa.array(list(first.values()), pa.int64()))

    def _applied(self, target: SqlObject, rows: pa.Table, args: Args) -> Applied:
        if not args.get("returning"):
            return Applied(rows.num_rows)
        names = [c.stored_name for c in target.columns]
        spec = self.catalog.stored(target)
        assert spec is not None
        whole = rows.select(names).cast(pa.schema([spec.schema.field(n) for n in names]))
        if args["verb"] == "merge":
            target, whole = with_action(target), whole.append_column(MERGE_ACTION, rows[MERGE_ACTION])
        columns, answered = answer(self.scratch, target, whole, args["returning"])
        return Applied(rows.num_rows, tuple(columns), answered)

    # -- loading ------------------------------------------------------------------------

    def _table(self, target: SqlObject) -> Changeable:
        found = self._tables.get(target.name)
        if found is None:
            spec = self.catalog.stored(target)
            assert spec is not None
            names = [c.stored_name for c in target.columns]
            dropped = [n for n in spec.schema.names if n not in names]
            found = Changeable(target, spec, (*names, *dropped))
        return found

    def load(self, target: SqlObject, keys: Sequence[Key] | None) -> Changeable:
        """Load the rows of some keys, or all rows, of a table that is not append-only."""
        table, fresh = self._table(target), target.name not in self._tables
        if fresh:
            self.scratch.table(table.loaded_object, places=True, lasting=True)
            self._tables[target.name] = table
        if table.keys is None:
            return table
        known = table.keys
        if keys is not None:
            wanted = [k for k in dict.fromkeys(keys) if k not in known] if target.key else []
            if not wanted:
                return table
            schema = pa.schema([table.spec.schema.field(k) for k in table.spec.key])
            by = [_held_key(target).index(k) for k in table.spec.key]
            columns = [pa.array([key[n] for key in wanted], schema.field(at).type) for at, n in enumerate(by)]
            rows = self.snapshot.lookup(table.spec, pa.table(columns, schema=schema), table.names)
            now: frozenset[Key] | None = known | set(wanted)
        else:
            rows, now = self.snapshot.scan(table.spec, table.names), None
            if known:
                rows = _without(rows, _held_key(target), known)
        first = sum(part.num_rows for part in table.before)
        if rows.num_rows:
            places = pa.array(np.arange(first, first + rows.num_rows))
            with self.scratch.registered_for_now():
                self.scratch.insert_rows(table.loaded_object, rows, places)
        table = replace(table, before=(*table.before, rows), keys=now)
        self._tables[target.name] = table
        return table

    # -- reads ----------------------------------------------------------------------------

    def read(
        self, sql: str, now_us: int, limits: ReadLimits | None = None, zone: str = UTC
    ) -> tuple[list[tuple[str, str]], pa.Table]:
        """Run a query over the tables as they are now."""
        with self.scratch.registered_for_now():
            self.scratch.in_zone(zone).at(now_us)
            named = self.catalog.expanded(self.catalog.read_by(sql))
            for found, rows in needed_rows(
                self.catalog, self.snapshot, sql, {}, [o for o in named if not self._has_own_rows(o)]
            ):
                if rows is not None:
                    self.scratch.relation(found, rows)
            self._show_own(named)
            for found in named:
                if found.kind == "view":
                    self.scratch.view(found.name, found.text)
            return self.scratch.query(sql, shown=sql, limits=limits)

    def _has_own_rows(self, found: SqlObject) -> bool:
        table = self._tables.get(found.name)
        return table is not None and table.changed

    def _show_own(self, named: Sequence[SqlObject]) -> None:
        """Show changed tables as they are now, under their names."""
        for found in named:
            table = self._tables.get(found.name)
            if table is None or not table.changed:
                continue
            if found.append_only:
                rows = self._scan(found)
                parts = [_with_columns(part, rows.schema) for part in table.appended]
                self.scratch.relation(found, pa.concat_tables([rows, *parts]))
            else:
                self.load(found, None)
                self._show_loaded(found)

    def _show_loaded(self, found: SqlObject) -> None:
        listed = ", ".join(
            quoted(c.name)
            if c.generated is None
            else f"CAST(({c.generated}) AS {c.type}) AS {quoted(c.name)}"
            for c in found.columns
        )
        self.scratch.view(found.name, f"select {listed} from {quoted(PREFIX + found.name)}")

    def _show(self, args: Args, target: SqlObject) -> None:
        """Show the relations that a change reads."""
        named = self.catalog.expanded([self.catalog.get(n) for n in args["reads"]])
        again = args["verb"] in ("update", "delete") and args["sql"].lower().count(target.name.lower()) > 1
        if again and all(o.name != target.name for o in named):
            named = [target, *named]
        for found in named:
            if found.kind == "view":
                self.scratch.view(found.name, found.text)
            elif self._has_own_rows(found) or (
                found.name == target.name and args["verb"] in ("update", "delete")
            ):
                if found.append_only:
                    self._show_own([found])
                else:
                    self.load(found, None if found.name in args["reads"] else _given_keys(args))
                    self._show_loaded(found)
            else:
                self.scratch.relation(found, self._scan(found))

    def _scan(self, found: SqlObject) -> pa.Table:
        if found.name not in self._scans:
            spec = self.catalog.stored(found)
            if spec is None:
                raise InvalidError(f"the rows of {found.kind} {found.name!r} are not kept")
            self._scans[found.name] = self.snapshot.scan(spec, [c.stored_name for c in found.columns])
        return self._scans[found.name]

    # -- the result -------------------------------------------------------------------------

    def changed_rows(self, table: Changeable) -> pa.Table:
        """The rows that a table loses (`_w` -1) and then gets (1), under their stored names."""
        if table.target.append_only:
            rows = pa.concat_tables(table.appended)
            return rows.append_column("_w", pa.array(np.ones(rows.num_rows, np.int64)))
        chunks = [chunk for part in table.touched for chunk in part.chunks]
        places = pa.chunked_array(chunks, pa.int64()).unique()
        schema = pa.schema([table.spec.schema.field(n) for n in table.names])
        before = pa.concat_tables(table.before) if table.before else schema.empty_table()
        old = places.filter(pa.compute.less(places, INSERTED))
        place = quoted(PLACE)
        with self.scratch.registered_for_now():
            listed = self.scratch.rows(pa.table({"place": places}))
            come = self.scratch.arrow(
                f"select {returned(table.target.columns)}, {place} from {quoted(table.loaded_name)} "
                f"where {place} >= {INSERTED} or {place} in (select place from {listed}) order by {place}"
            )
        fresh = come.select(list(table.names[: table.shown]))
        if len(table.names) > table.shown:
            fresh = self._with_dropped(table, fresh, before, come.column(PLACE))
        gone, fresh = before.take(old), fresh.cast(schema)
        weights = np.concatenate((np.full(gone.num_rows, -1, np.int64), np.ones(fresh.num_rows, np.int64)))
        return pa.concat_tables([gone, fresh]).append_column("_w", pa.array(weights))

    def _with_dropped(
        self, table: Changeable, rows: pa.Table, before: pa.Table, places: pa.ChunkedArray
    ) -> pa.Table:
        """Add the values of dropped columns: rows that are updated keep theirs, new ones have NULL."""
        at = pa.array([None if p >= INSERTED else p for p in places.to_pylist()], pa.int64())
        for name in table.names[table.shown :]:
            rows = rows.append_column(table.spec.schema.field(name), before.column(name).take(at))
        return rows


def _retargeted(sql: str, skip: int, fresh: str, called: str) -> str:
    """Let a change write to another table, which has the name of its target as its alias."""
    fragment = SqlFragment(sql, tokens_of(sql, "duckdb"), "duckdb")
    words = Words(fragment, skip)
    words.name("name of the table")
    start, end = fragment.tokens[skip].start, fragment.tokens[words.at - 1].end + 1
    after = fragment.word(words.at)
    match fragment.word(0):
        case "UPDATE":
            has_alias = after != "SET"
        case "DELETE":
            has_alias = not words.over and after not in ("WHERE", "USING")
        case "MERGE":
            has_alias = after != "USING"
        case _:
            has_alias = after == "AS"
    alias = "" if has_alias else f" AS {quoted(called)}"
    return fragment.rewritten([(start, end, f"{quoted(fresh)}{alias}")]).sql


def _held_key(target: SqlObject) -> list[str]:
    held_by = {c.name: c.stored_name for c in target.columns}
    return [held_by.get(k, k) for k in target.key]


def _keys(rows: pa.Table, names: Sequence[str]) -> list[Key]:
    return list(zip(*(rows.column(n).to_pylist() for n in names), strict=True))


def _last_of_each_key(target: SqlObject, rows: pa.Table) -> pa.Table:
    """Of the rows with the same primary key, the last one counts."""
    if not target.key:
        return rows
    keys = _keys(rows, _held_key(target))
    last = {key: n for n, key in enumerate(keys)}
    return rows if len(last) == len(keys) else rows.take(pa.array(sorted(last.values())))


def _given_keys(args: Args) -> list[Key] | None:
    return None if args.get("keys") is None else [tuple(k) for k in args["keys"]]


def _without(rows: pa.Table, names: Sequence[str], keys: frozenset[Key]) -> pa.Table:
    """The rows whose keys are not among these."""
    schema = pa.schema([rows.schema.field(n) for n in names])
    columns = [pa.array([key[n] for key in keys], f.type) for n, f in enumerate(schema)]
    numbered = rows.select(list(names)).append_column("__n", pa.array(np.arange(rows.num_rows)))
    left = numbered.join(pa.table(columns, schema=schema), list(names), join_type="left anti")
    return rows.take(pa.array(np.sort(left.column("__n").to_numpy())))


def _filled(rows: pa.Table, target: SqlObject, spec: TableSpec) -> pa.Table:
    """Add the columns that rows lack because they were added to the table later."""
    for column in target.columns:
        if column.stored_name not in rows.column_names:
            field = spec.schema.field(column.stored_name)
            values = filled(rows, column.stored_name, spec.fill[column.stored_name])
            rows = rows.add_column(rows.num_columns - 1, field, values)
    return rows.select([*(c.stored_name for c in target.columns), "_w"])


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(f.name) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)
