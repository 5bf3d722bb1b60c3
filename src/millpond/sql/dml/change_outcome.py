"""The outcome of an executed INSERT, UPDATE or DELETE: the number of rows, and the result of RETURNING.

The manifest of the epoch that executed it has the number.  The rows are recomputed from
the inbox entry and the previous epoch, as in a replay (law 3); so results that are never
requested need no storage, and any process can request them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidError, UnavailableError
from millpond.sql.dml.change_rows import changed_rows
from millpond.sql.host import Host
from millpond.state import inbox
from millpond.state.inbox import COUNTS, FIRST_ENTRY
from millpond.state.tables.error_rows import ERRORS_SPEC


def wait_for_outcome(host: Host, number: int) -> tuple[int, int, pa.Table | None]:
    """Wait until an inbox entry is executed; return its epoch, row count, and the rows of RETURNING."""
    host.wait_executed(number)
    epoch = host.epoch_of(number)
    with host.pinned_range(epoch - 1, epoch) as (before, after):
        manifest = after.manifest
        for what in manifest.admitted.get("inbox", ()):
            first, last = what.get(FIRST_ENTRY), what["entry"]
            if first is not None and first <= number <= last and str(number) in what[COUNTS]:
                count = int(what[COUNTS][str(number)])
                entries = [inbox.read(host.store, n) for n in range(first, last + 1)]
                asked = number - int(first)
                if not entries[asked].args.get("returning"):
                    return epoch, count, None
                made = changed_rows(host.plan_of(before.manifest), before, [e.args for e in entries])
                return epoch, count, made.answers[asked][1]
        errors = after.table(ERRORS_SPEC).scan()
    mine = pc.and_(pc.equal(errors["step"], "inbox"), pc.equal(errors["row"], str(number)))
    reasons = errors.filter(mine)["reason"].to_pylist()
    if reasons:
        raise InvalidError("the change was refused, and changed nothing", detail=reasons[0], epoch=epoch)
    raise UnavailableError(
        "what the change did is no longer known",
        detail=f"inbox entry {number} was executed by epoch {epoch} or before",
        hint="ask soon after the statement, or keep more history with retain_epochs",
        epoch=epoch,
    )
