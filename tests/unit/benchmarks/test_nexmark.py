"""What the Nexmark benchmark checks before it times anything, and what it makes of the numbers."""

from __future__ import annotations

from datetime import UTC

import duckdb
import pyarrow as pa
import pytest

from benchmarks.nexmark import compare, events, queries, report
from benchmarks.outcome import Outcome
from millpond.sources.nexmark_events import NexmarkConfig, generate

CONFIG = NexmarkConfig(events_per_second=100)


@pytest.fixture(scope="module")
def batch() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for kind in events.TABLES:
        connection.register("rows", generate(kind, 0, 6_000, CONFIG))
        connection.execute(f"CREATE TABLE {kind} AS FROM rows")
    connection.register("rows", events.side_table())
    connection.execute("CREATE TABLE side_input AS FROM rows")
    return connection


@pytest.mark.parametrize("name", queries.QUERIES)
def test_the_batch_answer_is_right_and_half_of_it_is_not(batch: duckdb.DuckDBPyConnection, name: str) -> None:
    query = queries.QUERIES[name]
    answer = compare.expected(batch, query)
    assert compare.differences(batch, query, answer) == []
    if query.check == "shape":
        assert compare.differences(batch, query, pa.concat_tables([answer, answer])) != []
    else:
        assert compare.differences(batch, query, answer.slice(0, answer.num_rows // 2)) != []
        assert compare.differences(batch, query, answer.select(range(answer.num_columns - 1))) != []


def test_a_row_told_twice_is_one_too_many(batch: duckdb.DuckDBPyConnection) -> None:
    query = queries.QUERIES["q2"]
    answer = compare.expected(batch, query)
    (wrong,) = compare.differences(batch, query, pa.concat_tables([answer, answer.slice(0, 1)]))
    assert wrong.startswith("1 rows too many")


def test_values_may_come_as_text(batch: duckdb.DuckDBPyConnection) -> None:
    query = queries.QUERIES["q9"]
    answer = compare.expected(batch, query)
    as_text = answer.cast(pa.schema([(name, pa.string()) for name in answer.schema.names]))
    assert compare.differences(batch, query, as_text) == []


def test_of_windows_only_those_count_that_ended(batch: duckdb.DuckDBPyConnection) -> None:
    query = queries.QUERIES["q11"]
    answer = compare.expected(batch, query)
    ends = [at.replace(tzinfo=UTC) for at in answer["endtime"].to_pylist()]
    newest = batch.sql("SELECT max(date_time) FROM bid").fetchall()[0][0].replace(tzinfo=UTC)
    open_ones = [n for n, end in enumerate(ends) if end > newest]
    assert open_ones
    closed = answer.take([n for n in range(len(ends)) if n not in open_ones])
    assert compare.differences(batch, query, closed) == []


def test_every_system_says_every_query() -> None:
    missing = [
        (system, name)
        for system in ("millpond", "flink", "spark", "duckdb")
        for name in queries.QUERIES
        if not queries.path(system, name).is_file()
    ]
    assert missing == []


def test_groups_hold_every_query_once() -> None:
    assert sorted(queries.GROUPS["stateless"] + queries.GROUPS["stateful"]) == sorted(queries.QUERIES)


def _outcome(query: str, name: str, seconds: float) -> Outcome:
    return Outcome(name, name, 1000, 2, 1.0, seconds, 1.0, 0.0, 0.0, 1, 1, 1, {}, query)


def test_means_are_over_what_both_ran_and_take_the_best_run() -> None:
    outcomes = [
        *(_outcome("q4", "millpond", 4.0), _outcome("q4", "millpond", 1.0), _outcome("q4", "flink", 4.0)),
        *(_outcome("q9", "millpond", 1.0), _outcome("q9", "flink", 1.0), _outcome("q20", "flink", 1.0)),
    ]
    found = report.ratios(outcomes, "flink", queries.GROUPS["large joins"])
    assert found == {"q4": 4.0, "q9": 1.0} and report.mean(list(found.values())) == pytest.approx(2.0)


def test_the_input_is_made_of_whole_files() -> None:
    assert events.of_size(20_000_000).events_per_file == 1_000_000
    assert events.of_size(20_000).events_per_file == 1_000
