"""A source of numbered rows for measurements: splits are described, not carried, so tasks make the rows.

Items are pushed by the benchmark: a range of keys, a random choice of keys, or rows of a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us"))])
PIECES = 2  # splits of one item, so that two tasks share it


@dataclass(frozen=True)
class NumberSource:
    append_only: bool = True
    items: list[Mapping[str, Any]] = field(
        default_factory=list, compare=False, repr=False, metadata={"durable": False}
    )

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def push(self, **item: Any) -> None:
        """`keys=(first, last)`, or `random=n, of=keys, seed=s`; if wanted `at_us`, `weight`, `pieces`."""
        self.items.append(item)

    def table(self, step: str) -> TableSpec | None:
        return None

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        at, taken = position or (0, 0)
        if at >= len(self.items):
            return Poll()
        item = self.items[at]
        rows = item["keys"][1] - item["keys"][0] if "keys" in item else item["random"]
        pieces = int(item.get("pieces", PIECES)) if rows > 1 else 1
        splits = [
            Split({**item, "item": at, "piece": n, "pieces": pieces}, rows // pieces, 24 * rows // pieces)
            for n in range(taken, pieces)
        ]
        return Poll(tuple(splits), backlog_rows=10**9 if at + 1 < len(self.items) else 0)

    def advance(self, position: Any, admitted: Sequence[Split], rejects: Sequence[Any]) -> Advance:
        last = admitted[-1].what
        done = last["piece"] + 1 == last["pieces"]
        return Advance([last["item"] + 1, 0] if done else [last["item"], last["piece"] + 1])

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield make_rows(split.what).select([*columns, *(["_w"] if "weight" in split.what else [])])


def make_rows(what: Mapping[str, Any]) -> pa.Table:
    piece, pieces = what["piece"], what["pieces"]
    if "keys" in what:
        first, last = what["keys"]
        keys = np.arange(first + piece, last, pieces, dtype=np.int64)
    else:
        rng = np.random.default_rng([what["seed"], piece])
        keys = rng.integers(0, what["of"], what["random"] // pieces)
    values = keys * 7919 % 100_003 + int(what.get("shift", 0))
    if "one_key" in what:
        values, keys = keys, np.full(len(keys), what["one_key"], np.int64)
    times = np.full(len(keys), what.get("at_us", 0), np.int64)
    if "spread_us" in what:
        times = times + keys % what["spread_us"][0] * what["spread_us"][1]
    table = pa.table({"k": keys, "v": values, "ts": pa.array(times).cast(pa.timestamp("us"))}, schema=SCHEMA)
    if "weight" in what:
        table = table.append_column("_w", pa.array(np.full(len(keys), what["weight"], np.int64)))
    return table
