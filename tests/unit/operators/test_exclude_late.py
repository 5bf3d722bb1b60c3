"""ExcludeLate: the input of a watermark without the rows that it took out, however the input is cut (laws 1 and 8)."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from millpond.operators.exclude_late import ExcludeLate
from millpond.operators.operator import Shape
from millpond.plan import codec
from tests.sampling import first
from tests.unit.operators.harness import OperatorRun, row_counts, rows

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
SHAPE = Shape(SCHEMA, append_only=True)


def line(k: int, times: int = 1) -> str:
    return f"+{times} {k} 1970-01-01T00:00:0{k}"


def given() -> OperatorRun:
    operator = ExcludeLate("ts", SHAPE)
    assert codec.loads(codec.dumps(operator)) == operator
    return OperatorRun(operator, [SHAPE, SHAPE])


def test_late_rows_that_come_later_are_waited_for() -> None:
    """The first chunk has fewer of a row than were late: none of them comes out, and none is taken back."""
    run = given()
    out = run.epoch(rows(SCHEMA, line(1), line(2)), rows(SCHEMA, line(1, 3)))
    assert {row[0]: n for row, n in row_counts(out).items()} == {2: 1}
    out = run.epoch(rows(SCHEMA, line(1), line(3)), None)
    assert {row[0]: n for row, n in row_counts(out).items()} == {3: 1}
    run.epoch(rows(SCHEMA, line(1, 2)), None)
    assert {row[0]: n for row, n in row_counts(run.output).items()} == {1: 1, 2: 1, 3: 1}
    assert run.state("owed").num_rows == 0


def test_rows_without_a_time_are_left_out() -> None:
    run = given()
    run.epoch(rows(SCHEMA, line(1), "+ 2 NULL"), rows(SCHEMA, line(3)))
    assert {row[0] for row in row_counts(run.output)} == {1}


@pytest.mark.parametrize("seed", first(1, range(8)))
def test_the_output_is_the_difference_however_the_input_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    taken = [rng.randrange(4) for _ in range(30)]
    late = rng.sample(taken, 12)
    run = given()
    run.epoch(None, rows(SCHEMA, *map(line, late)))
    while taken:
        some, taken = taken[: (cut := rng.randint(1, 9))], taken[cut:]
        run.epoch(rows(SCHEMA, *map(line, some)), None, parallelism=rng.randrange(1, 6))
        if rng.random() < 0.3:
            run.compact()
    rng = random.Random(seed)
    every = Counter(rng.randrange(4) for _ in range(30))
    assert Counter({row[0]: n for row, n in row_counts(run.output).items()}) == every - Counter(late)
