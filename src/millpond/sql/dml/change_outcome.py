"""The outcome of an executed INSERT, UPDATE or DELETE: the number of rows, and the result of RETURNING.

The manifest of the epoch that executed it has the number.  The rows are recomputed from
the inbox entry and the previous epoch, as in a replay (law 3); so results that are never
requested need no storage, and any process can request them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import ConflictError, InvalidError, UnavailableError
from millpond.sql.dml.change_rows import changed_rows
from millpond.sql.dml.transaction_entry import items_of
from millpond.sql.dml.transaction_rows import execute_transactions
from millpond.sql.host import Host
from millpond.state import inbox
from millpond.state.inbox import ABORTED, COUNTS, FIRST_ENTRY, TRANSACTION
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.tables.error_rows import ERRORS_SPEC


def wait_for_outcome(host: Host, number: int, item: int = 0) -> tuple[int, int, pa.Table | None]:
    """Wait until an inbox entry is executed; return its epoch, row count, and the rows of RETURNING.

    Of a transaction it is what one `item` did; ConflictError if the transaction was aborted.
    """
    host.wait_executed(number)
    epoch = host.epoch_of(number)
    with host.pinned_range(epoch - 1, epoch) as (before, after):
        for what in after.manifest.admitted.get("inbox", ()):
            first, last = what.get(FIRST_ENTRY), what["entry"]
            if first is None or not first <= number <= last:
                continue
            if str(number) in what.get(ABORTED, ()):
                raise aborted(what[ABORTED][str(number)], epoch)
            if str(number) not in what[COUNTS]:
                continue
            found = what[COUNTS][str(number)]
            count = int(found[item] if isinstance(found, list) else found)
            return epoch, count, _answer(host, before, range(first, last + 1), number, item)
        errors = after.table(ERRORS_SPEC).scan()
    mine = pc.and_(pc.equal(errors["step"], "inbox"), pc.equal(errors["row"], str(number)))
    reasons = errors.filter(mine)["reason"].to_pylist()
    if reasons:
        raise refused(reasons[0], epoch)
    raise UnavailableError(
        "what the change did is no longer known",
        detail=f"inbox entry {number} was executed by epoch {epoch} or before",
        hint="ask soon after the statement, or keep more history with retain_epochs",
        epoch=epoch,
    )


def refused(reason: str, epoch: int) -> InvalidError:
    """The error for a change that could not be executed; a violated rule is told in PostgreSQL's words."""
    plain = reason.removeprefix("transaction: ")
    message, _, detail = plain.partition(": ")
    if any(words in message for words in _RULES):
        return InvalidError(
            message, detail=detail or "the change was refused, and changed nothing", epoch=epoch
        )
    return InvalidError("the change was refused, and changed nothing", detail=plain, epoch=epoch)


_RULES = ("violates", "command cannot affect row a second time")


def aborted(reason: str, epoch: int | None = None) -> ConflictError:
    return ConflictError(
        "the transaction was aborted, and changed nothing",
        detail=reason,
        hint="run it again from its beginning",
        epoch=epoch,
    )


def _answer(host: Host, before: Snapshot, numbers: range, number: int, item: int) -> pa.Table | None:
    entries = [inbox.read(host.store, n) for n in numbers]
    asked = entries[number - numbers.start]
    plan = host.plan_of(before.manifest)
    if asked.kind == TRANSACTION:
        items = items_of(asked.args) or ()
        if not items or not items[item].get("returning"):
            return None
        return execute_transactions(plan, before, entries).answers[number][item]
    if not asked.args.get("returning"):
        return None
    return changed_rows(plan, before, [e.args for e in entries]).answers[number - numbers.start][1]
