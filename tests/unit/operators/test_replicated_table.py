"""Copies of tables against a plain dict: puts, deletes, unchanged values and truncations, however they are cut."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.operators.operator import Shape
from millpond.operators.replicated_table import LOG_FIELDS, ReplicatedTable
from tests.unit.operators.harness import OperatorRun, assert_same_rows, parallelisms, row_counts

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.string()), ("y", pa.int64())])
LOG = pa.schema([*SCHEMA, *LOG_FIELDS])
CUTS = pa.schema([("seq", pa.int64())])
Step = tuple[str, int, str | None, int, frozenset[int]]


class Copied:
    """What a copy is: a dict."""

    def __init__(self) -> None:
        shapes = [Shape(LOG, append_only=True), Shape(CUTS, append_only=True)]
        self.run = OperatorRun(ReplicatedTable(("k",), repeats=True), shapes)
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.sequence = 0

    def epoch(self, steps: list[Step], **options: Any) -> None:
        log, cuts = [], []
        for verb, k, x, y, kept in steps:
            self.sequence += 1
            unchanged = sorted(kept) if verb == "put" and k in self.rows else []
            if verb == "truncate":
                self.rows.clear()
                cuts.append({"seq": self.sequence})
                continue
            log.append(
                {
                    "k": k,
                    "x": None if 1 in unchanged or verb == "delete" else x,
                    "y": None if 2 in unchanged or verb == "delete" else y,
                    "__seq": self.sequence,
                    "__put": verb == "put",
                    "__unchanged": unchanged or None,
                }
            )
            if verb == "delete":
                self.rows.pop(k, None)
            else:
                old = self.rows.get(k, (k, x, y))
                self.rows[k] = (k, old[1] if 1 in unchanged else x, old[2] if 2 in unchanged else y)
        tables = [pa.Table.from_pylist(log, schema=LOG), pa.Table.from_pylist(cuts, schema=CUTS)]
        self.run.epoch(*tables, **options)
        self.run.inputs = [LOG.empty_table(), CUTS.empty_table()]

    def check(self) -> None:
        assert_same_rows(row_counts(self.run.output), Counter(self.rows.values()), "table", "dict")
        assert self.run.errors.num_rows == 0


steps_of = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete", "truncate"]),
        st.integers(0, 4),
        st.sampled_from(["a", "b", None]),
        st.integers(0, 2),
        st.sampled_from([frozenset(), frozenset({1}), frozenset({1, 2})]),
    ),
    max_size=24,
)


@settings(max_examples=60, deadline=None)
@given(steps_of, st.data(), parallelisms())
def test_a_copy_is_a_dict_however_it_is_cut(steps: list[Step], data: st.DataObject, parallelism: int) -> None:
    table = Copied()
    while steps:
        cut = data.draw(st.integers(1, len(steps)))
        table.epoch(steps[:cut], parallelism=(parallelism + cut) % 5 + 1)
        table.check()
        steps = steps[cut:]
        if cut % 2:
            table.run.compact()


def test_a_delete_of_a_missing_row_is_an_error_if_nothing_repeats() -> None:
    shapes = [Shape(LOG, append_only=True)]
    run = OperatorRun(ReplicatedTable(("k",)), shapes)
    row = {"k": 1, "__seq": 1, "__put": False}
    run.epoch(pa.Table.from_pylist([row], schema=LOG))
    assert run.errors["reason"].to_pylist() == ["delete meets no row"]
