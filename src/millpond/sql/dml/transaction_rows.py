"""Executes transactions of the inbox when their turn comes.

Law: a transaction sees what all earlier entries left, and is executed as a whole or not at all.  It is
aborted if the client was told something that is no longer so (an answer, or a number of changed rows), or if
one of its conditions does not hold: so transactions are serializable, in the order of the inbox.

Transactions that follow each other run in one epoch, one after the other.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millpond.errors import ConflictError, InvalidError, MillpondError
from millpond.plan.nodes import Plan
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.functions import check_known
from millpond.sql.dml.change_rows import zone_of
from millpond.sql.dml.changeable_tables import Applied, ChangeableTables
from millpond.sql.dml.refusal_reasons import reason_of
from millpond.sql.dml.transaction_entry import (
    CHANGES,
    READ,
    ROWS,
    Item,
    answer_digest,
    items_of,
    rows_of_item,
    versions,
)
from millpond.sql.reads.scratch import ZONED, thread_scratch
from millpond.state.inbox import LOGIC, ROW_ENTRY, TRANSACTION, Entry
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.request_ids import request_of

ENTRIES_MAX = 256  # maximum number of transactions in one epoch


@dataclass
class ExecutedTransactions:
    """By entry number: what each transaction did, or why not; and the changed rows by table."""

    rows: dict[str, pa.Table] = field(default_factory=dict)  # by the scan that reads them
    counts: dict[int, list[int]] = field(default_factory=dict)  # by item
    aborted: dict[int, str] = field(default_factory=dict)  # another writer was first
    refused: dict[int, str] = field(default_factory=dict)  # it cannot be executed
    answers: dict[int, list[pa.Table | None]] = field(default_factory=dict)  # results of RETURNING
    left_out: dict[int, list[str]] = field(default_factory=dict)  # why single rows were not written


def in_one_epoch(entries: Sequence[Entry], checked: Container[str]) -> list[Entry]:
    """The first entry, and those after it that can be executed in the same epoch: transactions, and rows for
    tables with rules.

    Materialized views change only with the epoch, so a transaction that reads one is the first of its epoch.
    A request that its client may repeat stands alone, for its id is part of the commit.
    """
    found = [entries[0]]
    for entry in entries[1:ENTRIES_MAX]:
        if request_of(entries[0].args) is not None or request_of(entry.args) is not None:
            break
        rows = entry.kind == ROW_ENTRY and entry.args.get("table") in checked
        if (entry.kind != TRANSACTION and not rows) or entry.args.get("views"):
            break
        found.append(entry)
    return found


def checked_tables(plan: Plan) -> dict[str, str]:
    """The names of tables with rules, by the scan that reads them: their rows are written in order."""
    return {o.scan: o.name for o in plan.objects.values() if o.is_checked and o.scan is not None}


def execute_transactions(plan: Plan, before: Snapshot, entries: Sequence[Entry]) -> ExecutedTransactions:
    """Execute some transactions in order, over the epoch before."""
    done = ExecutedTransactions()
    catalog = Catalog(plan)
    with thread_scratch().for_statement() as scratch:
        tables = ChangeableTables(catalog, before, scratch)
        _prefetch(tables, entries)
        for entry in entries:
            tables.begin_entry()
            try:
                with tables.all_or_nothing(_texts(entry)):
                    if entry.kind == ROW_ENTRY:
                        applied = _pushed(tables, entry, done)
                    else:
                        applied = _execute(tables, _items(entry), entry.payload)
            except ConflictError as error:
                done.aborted[entry.number] = reason_of(error)
            except Exception as error:
                # A bad text must not block the inbox for ever.
                if isinstance(error, MillpondError) and not isinstance(error, InvalidError):
                    raise  # the text is not the cause
                done.refused[entry.number] = reason_of(error)
                tables.keep_numbers()
            else:
                done.counts[entry.number] = [one.count for one in applied]
                done.answers[entry.number] = [one.rows for one in applied]
        for table in tables.changed_tables():
            assert table.target.scan is not None
            done.rows[table.target.scan] = tables.changed_rows(table)
    return done


def _texts(entry: Entry) -> list[str]:
    """The statements of a transaction."""
    if entry.kind == ROW_ENTRY:
        return []
    zoned = [ZONED] if any("time_zone" in item for item in _items(entry)) else []
    return [*zoned, *(str(item["sql"]) for item in _items(entry) if "sql" in item)]


def _items(entry: Entry) -> Sequence[Item]:
    """The items of a transaction; a single change that came as one is an item."""
    items = [entry.args] if entry.kind == LOGIC else items_of(entry.args)
    if items is None:
        raise InvalidError("it is no transaction that this version knows")
    return items


def _pushed(tables: ChangeableTables, entry: Entry, done: ExecutedTransactions) -> list[Applied]:
    """Write the rows of an entry without a statement."""
    scan = str(entry.args["table"])
    name = checked_tables(tables.catalog.plan)[scan]
    with pa.ipc.open_stream(entry.payload) as stream:
        rows = stream.read_all()
    count, left_out = tables.push({"table": scan, "name": name}, rows)
    if left_out:
        done.left_out[entry.number] = left_out
    return [Applied(count)]


def _prefetch(tables: ChangeableTables, entries: Sequence[Entry]) -> None:
    """Load the rows of all entries in few lookups."""
    try:
        items = [
            item for entry in entries if entry.kind == TRANSACTION for item in items_of(entry.args) or ()
        ]
        tables.prefetch(items)
    except (pa.ArrowException, TypeError, ValueError, LookupError):
        return  # one of them has bad keys: each loads its own rows, and that one is refused


def _execute(tables: ChangeableTables, items: Sequence[Item], payload: bytes) -> list[Applied]:
    applied = []
    for item in items:
        verb = item["verb"]
        if verb in CHANGES:
            if verb != ROWS:
                check_known(item["sql"], tables.catalog.objects.values())
            one = tables.apply(item, rows_of_item(item, payload) if verb == ROWS else None)
            _require_same(item, one)
        elif verb == READ:
            one = Applied(0)
            _require_same_answer(tables, item)
        else:
            one = Applied(0)
            require_condition(tables, item)
        applied.append(one)
    return applied


def _require_same(item: Item, one: Applied) -> None:
    """Abort if the client was told something else about a change."""
    told = item.get("count")
    if told is not None and told != one.count:
        raise ConflictError(
            f"{item['verb'].upper()} of {item['name']!r} changes {one.count} rows now; it was {told} before"
        )
    digest = item.get("digest")
    if digest is not None and one.rows is not None and digest != answer_digest(one.names, one.rows):
        raise ConflictError(f"the rows of {item['name']!r} that it changed have changed since")


def _require_same_answer(tables: ChangeableTables, item: Item) -> None:
    """Abort if a query would give another answer than the client has read."""
    sql, told = item["sql"], item.get("versions")
    now = versions(tables.catalog, tables.snapshot, sql)
    if isinstance(told, Mapping) and told == now and not tables.has_changed(list(now)):
        return
    digest = item.get("digest")
    if digest is None or digest != answer_digest(
        *tables.read(sql, int(item.get("now_us", 0)), zone=zone_of(item))
    ):
        raise ConflictError(f"rows that it read have changed since: {' '.join(sql.split())[:200]}")


def require_condition(tables: ChangeableTables, item: Item) -> None:
    """Abort if a condition does not hold: the only value of its query must be true."""
    _, rows = tables.read(item["sql"], int(item.get("now_us", 0)), zone=zone_of(item))
    if rows.num_columns != 1:
        raise InvalidError("a condition is a query of one column", detail=item["sql"])
    if rows.num_rows != 1 or rows.column(0)[0].as_py() is not True:
        said: Any = item.get("message") or f"required: {' '.join(item['sql'].split())[:200]}"
        raise ConflictError(str(said))
