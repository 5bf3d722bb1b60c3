"""What a change of rows did, once its turn has come: how many rows, and what RETURNING gives.

The manifest of the epoch that executed it has the number.  The rows are computed
again from the entry and the epoch before, as a replay would (law 3); so nothing is
stored for answers that nobody asks for, and any process can ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import InvalidError, UnavailableError
from millpond.operators.materialize import ERRORS_SPEC
from millpond.sql.change_rows import changed_rows
from millpond.state import inbox

if TYPE_CHECKING:
    from millpond.pond import Pond


def done(pond: Pond, number: int) -> tuple[int, int, pa.Table | None]:
    """Wait for the turn of an inbox entry: the epoch that holds it, the count, and the rows it returns."""
    from millpond.engine.turns import COUNTS, MADE

    pond._door.wait_executed(number)
    epoch, _ = pond._door.epoch_of(number)
    reader = pond._reader
    with reader._stretch(epoch - 1, epoch) as (before, after):
        manifest = after.manifest
        for what in manifest.admitted.get("inbox", ()):
            if MADE in what and what[MADE] <= number <= what["entry"] and str(number) in what[COUNTS]:
                count = int(what[COUNTS][str(number)])
                entries = [inbox.read(pond.store, n) for n in range(what[MADE], what["entry"] + 1)]
                asked = number - int(what[MADE])
                if not entries[asked].args.get("returning"):
                    return epoch, count, None
                made = changed_rows(reader.plan_of(before.manifest), before, [e.args for e in entries])
                return epoch, count, made.answers[asked][1]
        errors = after.table(ERRORS_SPEC).scan()
    mine = pc.and_(pc.equal(errors["step"], "inbox"), pc.equal(errors["row"], str(number)))
    reasons = errors.filter(mine)["reason"].to_pylist()
    if reasons:
        raise InvalidError(
            "the change was refused, and nothing of it was done", detail=reasons[0], epoch=epoch
        )
    raise UnavailableError(
        "what the change did is no longer known",
        detail=f"inbox entry {number} was executed by epoch {epoch} or before",
        hint="ask soon after the statement, or keep more history with retain_epochs",
        epoch=epoch,
    )
