"""TopN: the first n rows of every key in an order.

Law: the output is a function of the input multiset (canonical): ties in the
order are broken by all other columns.  An epoch costs the touched keys times
(offset + n) plus the retracted rows, never the size of a key.  The head of a key
at e-1, merged with the delta, is certain up to the last row fetched, so more
rows are fetched only for keys whose head lost more rows than it gained.

Over append-only input a row that has left the head never returns: the table
(`<step>/head`) then stores only the heads, and senders send theirs.  Where
rows can be retracted, the table (`<step>/rows`) stores all of them.

With ties, all rows equal in the order to the n-th one are included.  Such a group
is fetched completely only when it enters, leaves or changes its rank; otherwise
only the changed rows of the group are emitted.

A hot or global key is ranked in two stages, `split(buckets)`: the heads of
(key, bucket of the row's hash), then the heads of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond import hashing
from millpond.column_names import check_names
from millpond.delta import HASH, WEIGHT, consolidate, weights
from millpond.errors import InvalidError
from millpond.identity import one_chunk, take
from millpond.kernels.bounds import Bound, among, bucketed_by, buckets_of
from millpond.kernels.keyed_rows import Keyed, as_declared, some_keys
from millpond.kernels.ranking import Counted, Ranked, Unread, rank
from millpond.kernels.top_n_candidates import candidates
from millpond.operators.operator import Binding, Change, Context, Inputs, Shape, StepResult, by_key
from millpond.operators.traits import DropsUnneededRows, ExpiresBehindBound, NamesColumnsRead
from millpond.ordering import Order
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table import KeySet
from millpond.state.tables.table_spec import TableSpec

Ints = npt.NDArray[np.int64]

BUCKET = "__bucket"


@dataclass(frozen=True)
class TopN(ExpiresBehindBound, DropsUnneededRows, NamesColumnsRead):
    """`rank_column` counts rows from 1 within the key; with ties it is SQL's rank()."""

    key: tuple[str, ...]
    order: tuple[Order, ...]
    n: int
    offset: int = 0
    with_ties: bool = False
    rank_column: str | None = None
    buckets: int | None = None  # the first of two stages: rank within (key, bucket)
    expires: Bound | None = None  # keys behind it have expired

    canonical: ClassVar[bool] = True

    @property
    def last(self) -> int:
        return self.offset + self.n

    def split(self, buckets: int) -> tuple[TopN, TopN]:
        """Split into two stages with the same result, for hot keys and the global one."""
        return replace(self, n=self.last, offset=0, rank_column=None, buckets=buckets), self

    # -- declaration -----------------------------------------------------------------

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        (shape,) = inputs
        self._check(step, shape)
        fields = list(stored(shape.schema))
        fields_stored = fields if self.buckets is None else [*fields, pa.field(BUCKET, pa.uint16())]
        key = self.key if self.buckets is None else (*self.key, BUCKET)
        table = TableSpec(
            f"{step}/{'head' if shape.append_only else 'rows'}",
            pa.schema(fields_stored),
            key,
            order=self.order,
            rule="weights",
            **bucketed_by(self.expires),
        )
        shown = list(fields)
        if self.rank_column is not None:
            shown.append(pa.field(self.rank_column, pa.int64()))
        return Binding(
            Shape(
                pa.schema(shown),
                append_only=False,
                key=self._key(shape),
                bounds=among(shape.bounds, self.key),
            ),
            (by_key(*key),),
            (table,),
            placed_by=self.key if self.buckets is None else None,
            wire=table.schema,
            extra=shape.append_only,
        )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (frozenset(binding.tables[0].schema.names) - {BUCKET},)

    def _check(self, step: str, shape: Shape) -> None:
        if self.n < 1 or self.offset < 0:
            raise InvalidError(
                "a top-n needs a positive n and an offset of 0 or more",
                detail=f"n is {self.n}, offset is {self.offset}",
                step=step,
            )
        if self.buckets is not None and not 1 <= self.buckets <= 65536:
            raise InvalidError(
                "a top-n is split into 1 to 65536 buckets", detail=f"got {self.buckets}", step=step
            )
        check_columns(step, shape, [*self.key, *(o.column for o in self.order)])
        if self.rank_column is not None:
            check_names([*shape.schema.names, self.rank_column], step)

    def _key(self, shape: Shape) -> tuple[str, ...] | None:
        if self.buckets is None and not self.with_ties:
            if self.n == 1:
                return self.key
            if self.rank_column is not None:
                return (*self.key, self.rank_column)
        return shape.key

    # -- the sender's side -------------------------------------------------------------

    def looks_at(self, binding: Binding, index: int) -> frozenset[str]:
        if self.buckets is not None:  # by the hash of the complete row
            return frozenset(binding.tables[0].schema.names)
        return frozenset({*self.key, *(o.column for o in self.order)})

    def thin(self, binding: Binding, index: int, part: pa.Table) -> pa.Table:
        """The rows of a batch that can be in a head: a row behind n others stays behind them."""
        if not binding.extra or self.buckets is not None:
            return part
        spec = binding.tables[0]
        return candidates(part, spec.key, self._orders(spec)[0], self.last)

    def prepare(self, binding: Binding, index: int, delta: pa.Table) -> pa.Table:
        spec = binding.tables[0]
        names = spec.schema.names
        if self.buckets is not None:
            own = [delta.column(name) for name in names if name != BUCKET]
            bucket = hashing.hash_columns(own, delta.num_rows) % np.uint64(self.buckets)
            delta = delta.append_column(pa.field(BUCKET, pa.uint16()), pa.array(bucket.astype(np.uint16)))
        delta = delta.select([*names, *([WEIGHT] if WEIGHT in delta.column_names else [])])
        if binding.extra:  # append-only: a row outside the sender's head is outside every head
            chosen, _ = self._orders(spec)
            delta = candidates(delta, spec.key, chosen, self.last)
        hashes = hashing.hash_columns([delta.column(name) for name in spec.key], delta.num_rows)
        return delta.append_column(pa.field(HASH, pa.uint64()), pa.array(hashes))

    # -- one epoch ---------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        (spec,) = binding.tables
        names = spec.schema.names
        drops = self.ended(ctx, binding)
        if inputs[0] is None:
            return StepResult(drops=drops)
        hidden = [name for name in (WEIGHT, HASH) if name in inputs[0].column_names]
        delta = inputs[0].select([*names, *hidden])
        if not binding.extra:  # append-only rows cannot cancel, and ranking sums up equal ones
            delta = consolidate(delta)
        if not delta.num_rows:
            return StepResult(drops=drops)
        hashes = one_chunk(delta.column(HASH)).to_numpy() if HASH in delta.column_names else None
        keys = KeySet.of(delta, spec.key, hashes)
        part = Keyed(Unread(names, delta), weights(delta), keys.inverse)
        gone = np.bincount(part.key[part.weights < 0], minlength=len(keys))
        table = ctx.table(spec.name, buckets=buckets_of(spec, keys.columns))

        pending = np.arange(len(keys))
        wanted = np.full(len(keys), self.last)
        is_plain = self.rank_column is None and not self.offset and self.buckets is None
        shown: list[pa.Table] = []
        stored_rows: list[pa.Table] = []  # with the hash of each row, in the order of the table
        while len(pending):
            here = some_keys(keys, pending, spec.key)
            heads = table.head(here, wanted[pending])
            head = Keyed.of(heads.table, names, heads.key_index)
            mine = part if len(pending) == len(keys) else part.of_keys(pending)
            ranked = rank(self._orders(spec), len(pending), head, mine, self.last)
            ranked = ranked.known_to(wanted[pending])
            settled = ranked.settled(self.with_ties, ranks=self.rank_column is not None)
            ranked = ranked.of_keys(settled)
            if not (binding.extra and is_plain):
                shown.append(self._shown(binding, ranked))
            if binding.extra:
                old, new = ranked.within(0, self.last, self.with_ties)
                stored_rows.append(_with_hash(ranked.table(names, new - old), here, ranked.key[new != old]))
            pending = pending[~settled]
            # Enough however many of the fetched rows are retracted; only a group of ties can need more.
            enough = self.last + gone[pending]
            wanted[pending] = np.where(enough > wanted[pending], enough, 2 * wanted[pending])
        change = pa.concat_tables(stored_rows) if binding.extra else delta
        if binding.extra and is_plain:  # the output is exactly the change of the heads
            out = as_declared(_weighted(binding.shape.schema), change.drop_columns([HASH]).columns)
        else:
            out = pa.concat_tables(shown)
        changes = (Change(spec.name, change),) if change.num_rows else ()
        return StepResult(out if out.num_rows else None, changes, drops=drops)

    def _orders(self, spec: TableSpec) -> tuple[tuple[Order, ...], tuple[Order, ...]]:
        """The order that ranks rows of a key, and the one that breaks ties: together, the table's order."""
        chosen = [o for o in self.order if o.column not in spec.key]
        return spec.order_within_key[: len(chosen)], spec.order_within_key[len(chosen) :]

    def _shown(self, binding: Binding, ranked: Ranked) -> pa.Table:
        old, new = ranked.within(self.offset, self.last, self.with_ties)
        schema = _weighted(binding.shape.schema)
        names = [field.name for field in binding.shape.schema if field.name != self.rank_column]
        if self.rank_column is None:
            return as_declared(schema, ranked.table(names, new - old).columns)
        before, after = (
            _numbered(ranked, w, count, self.offset, self.with_ties)
            for w, count in ((old, ranked.old), (new, ranked.new))
        )
        row = np.concatenate([before[0], after[0]])
        number = np.concatenate([before[1], after[1]])
        w = np.concatenate([-before[2], after[2]])
        size = int(number.max(initial=0)) + 1
        code, inverse = np.unique(row * size + number, return_inverse=True)
        total = np.zeros(len(code), np.int64)
        np.add.at(total, inverse, w)
        alive = np.flatnonzero(total)
        rows, numbers = np.divmod(code[alive], size)
        columns = [take(ranked.columns[name], ranked.row[rows]) for name in names]
        return as_declared(schema, [*columns, pa.array(numbers), pa.array(total[alive])])


def check_columns(step: str, shape: Shape, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in shape.schema.names]
    if missing:
        raise InvalidError(
            f"no column named {missing[0]!r}",
            detail=f"columns are {', '.join(shape.schema.names)}",
            step=step,
        )


def _weighted(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, pa.field(WEIGHT, pa.int64())])


def _with_hash(rows: pa.Table, keys: KeySet, key: Ints) -> pa.Table:
    """Append the hash of each row's key."""
    return rows.append_column(pa.field(HASH, pa.uint64()), pa.array(keys.hashes[key]))


def _numbered(
    ranked: Ranked, w: Ints, counted: Counted, offset: int, with_ties: bool
) -> tuple[Ints, Ints, Ints]:
    """(row, rank, weight): a separate rank for each row, or one rank for all ties."""
    rows = np.flatnonzero(w)
    if with_ties:
        return rows, counted.first[rows] + 1, w[rows]
    row = np.repeat(rows, w[rows])
    begins = np.maximum(counted.upto[rows] - counted.weights[rows], offset)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(w[rows]) - w[rows], w[rows])
    return row, np.repeat(begins, w[rows]) + nth + 1, np.ones(len(row), np.int64)
