"""The declaration of a state table: columns, key, order, merge rule, time.

Law: the spec alone defines the identity of a row.  Under rule *latest* it is (key, order columns): a row of a
newer run replaces an older one, and weight 0 is a tombstone.  Under rule *weights* it is all columns: weights
are summed over the runs, and zero means absent.  A table with a time bucket is one such table per bucket: a
row is replaced or cancelled only within its bucket, so a step that moves a row to another time also writes
the retraction with the old time.

A run says which columns it has.  A run that was written before a column was declared returns the column's
default, a copy of another column, or NULL (`fill`); a column that is no longer declared is not read.  So a
table may gain and lose columns outside its identity, and no run is rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.delta import HASH, WEIGHT
from millpond.errors import InternalError, InvalidError
from millpond.identity import one_chunk
from millpond.ordering import Order
from millpond.state.runs.missing_column import CopiedColumn, CopyOf, Fill


@dataclass(frozen=True)
class TableSpec:
    """
    >>> spec = TableSpec("count/out", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",))
    >>> spec.identity
    ('k',)
    """

    name: str  # "<step>/<table>", unique in a pond
    schema: pa.Schema  # user and accumulator columns, without _h and _w
    key: tuple[str, ...]
    order: tuple[Order, ...] = ()
    rule: Literal["weights", "latest"] = "latest"
    time: str | None = None  # a timestamp or int64 column
    bucket_width: int | None = None  # microseconds for timestamps, else units of the column
    # column -> its value, or a CopyOf, in runs that were written before it was declared; else NULL
    defaults: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        names = self.schema.names
        if self.rule not in ("weights", "latest"):
            raise InvalidError(f"table {self.name!r} has no such merge rule", detail=f"got {self.rule!r}")
        if len(set(names)) != len(names):
            raise InvalidError(
                f"table {self.name!r} has two columns of one name", detail=f"columns are {names}"
            )
        if hidden := [name for name in names if name in (HASH, WEIGHT)]:
            raise InvalidError(
                f"table {self.name!r} declares a reserved column", detail=f"{hidden} belong to runs"
            )
        used = [*self.key, *(o.column for o in self.order), *([self.time] if self.time else [])]
        if missing := [name for name in used if name not in names]:
            raise InvalidError(
                f"table {self.name!r} lacks columns it uses", detail=f"{missing} not in {names}"
            )
        for field in self.schema:
            if pa.types.is_dictionary(field.type) or pa.types.is_run_end_encoded(field.type):
                raise InvalidError(
                    f"table {self.name!r} stores plain columns only",
                    detail=f"column {field.name!r} is {field.type}",
                    hint="declare the value type; encoded rows are decoded when written",
                )
        if self.bucket_width is not None and (self.time is None or self.bucket_width < 1):
            raise InvalidError(
                f"table {self.name!r} needs a time column and a positive width to have buckets",
                detail=f"time is {self.time!r}, width is {self.bucket_width}",
            )

        if strange := [name for name, _ in self.defaults if name not in self.rest]:
            raise InvalidError(
                f"table {self.name!r} gives a default to what can have none",
                detail=f"{strange} is not among the value columns {list(self.rest)}",
            )

    @cached_property
    def fill(self) -> Mapping[str, Fill]:
        """For each column that a run may lack: its value then, as one row, or the column to copy."""
        defaults = dict(self.defaults)
        fills: dict[str, Fill] = {}
        for name in self.rest:  # a copied column is declared before its copy
            if name == self.time:
                continue
            kind = self.schema.field(name).type
            default = defaults.get(name)
            if default is None:
                fills[name] = pa.nulls(1, kind)
                continue
            if isinstance(default, CopyOf):
                fills[name] = CopiedColumn(default.column, kind, fills.get(default.column))
                continue
            fills[name] = self._one_value(name, default, kind)
        return fills

    def _one_value(self, name: str, default: Any, kind: pa.DataType) -> pa.Array:
        value = default
        if is_dataclass(default) and not isinstance(default, type):
            value = asdict(default)
        try:
            return pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidError(
                f"the default of column {name!r} of table {self.name!r} does not fit it",
                detail=f"{default!r} is no {kind}: {error}",
            ) from error

    @cached_property
    def fields(self) -> tuple[pa.Field, ...]:
        return tuple(self.schema)

    @cached_property
    def bits(self) -> Mapping[str, np.dtype[Any]]:
        """The columns with values of 1, 2, 4 or 8 bytes, and their bits as unsigned integers."""
        kinds = {f.name: f.type for f in self.schema if pa.types.is_primitive(f.type)}
        return {
            n: np.dtype(f"u{k.bit_width // 8}") for n, k in kinds.items() if k.bit_width in (8, 16, 32, 64)
        }

    def some(self, names: tuple[str, ...]) -> pa.Schema:
        """The schema of these columns."""
        known = self._schemas.get(names)
        if known is None:
            known = self._schemas[names] = pa.schema([self.schema.field(name) for name in names])
        return known

    @cached_property
    def _schemas(self) -> dict[tuple[str, ...], pa.Schema]:
        return {}

    @cached_property
    def rest(self) -> tuple[str, ...]:
        """The columns that are neither key nor order, in schema order."""
        used = {*self.key, *(o.column for o in self.order)}
        return tuple(name for name in self.schema.names if name not in used)

    @cached_property
    def order_within_key(self) -> tuple[Order, ...]:
        """How rows of one key are sorted in a run: by order columns, then for weights by all others."""
        within = tuple(o for o in self.order if o.column not in self.key)
        return within + tuple(Order(name) for name in self.rest) if self.rule == "weights" else within

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self.key + tuple(o.column for o in self.order_within_key)

    def buckets(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The time bucket number of each row: floor(time / width)."""
        if self.time is None:
            raise InternalError(f"table {self.name!r} has no buckets")
        return self.bucket_of(rows.column(self.time))

    def bucket_of(self, times: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """The bucket numbers of values of the time column."""
        if self.time is None or self.bucket_width is None:
            raise InternalError(f"table {self.name!r} has no buckets")
        if times.null_count:
            raise InternalError(
                f"table {self.name!r} got rows without a time",
                detail=f"{times.null_count} of {len(times)} rows have NULL in {self.time!r}",
            )
        return bucket_numbers(times, self.bucket_width)


def bucket_numbers(times: pa.Array | pa.ChunkedArray, width: int) -> npt.NDArray[np.int64]:
    """The bucket of each time; timestamps are in microseconds."""
    column = one_chunk(times)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return values // width
