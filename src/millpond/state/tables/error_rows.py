"""Error rows: how a step returns them, and the table that stores them."""

from __future__ import annotations

import pyarrow as pa

from millpond.delta import WEIGHT
from millpond.state.retention import ERRORS
from millpond.state.tables.table_spec import TableSpec

ERRORS_SPEC = TableSpec(
    ERRORS,
    pa.schema([("step", pa.string()), ("row", pa.string()), ("reason", pa.string())]),
    key=("step",),
    rule="weights",
)


ERROR_SCHEMA = pa.schema([("row", pa.string()), ("reason", pa.string()), (WEIGHT, pa.int64())])
