"""SUBSCRIBE view [SINCE EPOCH n] [UNTIL EPOCH m]: returns changes, epoch by epoch.

Each row has the epoch, the weight (1 for an insert, -1 for a retraction) and the view's
columns.  Without SINCE it begins with all rows of the view.  Iterating continues as long
as there are new epochs; fetchall() returns what is there now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millpond.errors import InvalidError
from millpond.kernels.time_zones import shown_in
from millpond.sql.result import Result
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(session: SqlSession, words: Words) -> Result:
    words.take("TO")
    name = words.name("name of the view")
    since = words.number() if words.take("SINCE", "EPOCH") else None
    until = words.number() if words.take("UNTIL", "EPOCH") else None
    words.end()
    session.require_epoch()
    found = session.catalog.get(name, "table", "materialized view")
    host, zone = session.host, session.time_zone

    def more(follow: bool) -> Iterator[pa.Table]:
        for delta in host.changes(found.name, since, follow=follow and until is None):
            if until is not None and delta.epoch > until:
                return
            rows = delta.table
            if not {c.name for c in found.columns} <= set(rows.column_names):
                raise InvalidError(
                    f"{found.name!r} had other columns then",
                    detail=f"columns were {', '.join(n for n in rows.column_names if n != '_w')}",
                    hint="subscribe SINCE a later EPOCH",
                    epoch=delta.epoch,
                )
            epoch = pa.array(np.full(rows.num_rows, delta.epoch, np.int64))
            columns = [shown_in(rows.column(c.name), zone) for c in found.columns]
            names = ["epoch", "weight", *(c.name for c in found.columns)]
            yield pa.table([epoch, rows.column("_w"), *columns], names=names)

    columns = ["epoch", "weight", *(c.name for c in found.columns)]
    types = ["BIGINT", "BIGINT", *(c.type for c in found.columns)]
    return Result(columns, types, None, f"SUBSCRIBE {found.name}", more=more)
