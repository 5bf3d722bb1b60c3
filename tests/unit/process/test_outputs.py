"""Rows that user code gave, in chunks: what fails takes its key's rows with it, and no others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.process.feed import CHUNK_ROWS, RowFeed
from millpond.process.outputs import Outputs

SCHEMAS = {"": pa.schema([("n", pa.int64())]), "side": pa.schema([("x", pa.int64())])}


def filled(given: dict[int, dict[str, list[Any]]], latest: bool = False) -> Outputs:
    outputs = Outputs({"": SCHEMAS[""]} if latest else SCHEMAS, latest)
    for by_side in given.values():
        for side, items in by_side.items():
            outputs[side].items += items
        outputs.end_key()
    return outputs


def shown(outputs: Outputs, side: str = "") -> list[Any]:
    return [part.columns[0].to_pylist() for part in outputs[side].parts]


def test_a_misfit_in_one_output_takes_its_key_out_of_all() -> None:
    outputs = filled(
        {3: {"": [(1,)]}, 5: {"": [(2,)], "side": [("text",)]}, 7: {"side": [(4,)], "": [{"n": 3}]}}
    )
    assert outputs.close([3, 5, 7], ()) == {5}
    assert (shown(outputs), shown(outputs, "side")) == ([[1, 3]], [[4]])


def test_what_failed_gives_nothing_and_is_no_misfit() -> None:
    outputs = filled({1: {"": [(1,), ("text",)]}, 2: {"": [(2,), (3,)]}, 4: {"": [("text",)]}})
    assert outputs.close([1, 2, 4], {1}) == {4}
    assert shown(outputs) == [[2, 3]]


def test_stretches_follow_each_other() -> None:
    outputs = filled({0: {"": [(1,)]}, 1: {}})
    assert outputs.close([0, 1], ()) == set()
    outputs[""].items.append((2,))
    outputs.end_key()
    assert outputs.close([2], ()) == set()
    assert outputs.close([], ()) == set()
    for item in (("text",), (3,)):
        outputs[""].items.append(item)
        outputs.end_key()
    assert outputs.close([3, 4], ()) == {3}
    assert shown(outputs) == [[1], [2], [3]]
    assert shown(outputs, "side") == []


def test_the_newest_row_of_a_key_is_its_only_one() -> None:
    outputs = filled(
        {0: {"": [(1,), (2,)]}, 1: {}, 2: {"": [(3,), None]}, 3: {"": [None, (4,)]}}, latest=True
    )
    assert outputs.close([0, 1, 2, 3], ()) == set()
    (part,) = outputs[""].parts
    assert part.keys.tolist() == [0, 2, 3]
    assert part.there.tolist() == [True, False, True]
    assert part.columns[0].to_pylist() == [2, 4]


def test_a_row_that_is_not_the_newest_must_fit_too() -> None:
    outputs = filled({0: {"": [("text",), (2,)]}, 1: {"": [(3,)]}}, latest=True)
    assert outputs.close([0, 1], ()) == {0}
    (part,) = outputs[""].parts
    assert (part.keys.tolist(), part.columns[0].to_pylist()) == ([1], [3])


def test_a_feed_gives_every_row_once_and_counts_them() -> None:
    rows = CHUNK_ROWS * 2 + 5
    feed = RowFeed(pa.table({"n": range(rows), "t": ["x"] * rows}))
    for number, row in enumerate(feed.rows, 1):
        assert feed.rows_read == number
        assert row == (number - 1, "x")
    assert feed.rows_read == rows
