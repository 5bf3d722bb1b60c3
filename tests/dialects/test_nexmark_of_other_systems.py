"""Nexmark as users of Flink and RisingWave write it: each view has the rows of the same query in the default dialect.

Flink's texts are those that the benchmark runs on Flink itself (`benchmarks/nexmark/flink`), with joins as of
processing time written as PROCTIME().
"""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond
from benchmarks.nexmark import compare, queries
from millpond.pond import Pond
from millpond.sources.nexmark_events import NexmarkConfig, generate
from tests.sql import nexmark

EVENTS = 3000
CONFIG = NexmarkConfig(events_per_second=75)  # windows of ten seconds close, and sessions
SOME = ("q1", "q4", "q5", "q11", "q21", "q22")
_TIMES = "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
TABLES = {
    "risingwave": f"""
        SET streaming_parallelism = 2;
        CREATE TABLE person (id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR,
            state VARCHAR, date_time TIMESTAMP, extra VARCHAR, {_TIMES}) APPEND ONLY;
        CREATE TABLE side_input (key BIGINT PRIMARY KEY, value VARCHAR) ON CONFLICT OVERWRITE""",
    "flink": f"""
        CREATE TABLE auction (id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,
            date_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING, {_TIMES});
        CREATE TABLE bid (`auction` BIGINT, bidder BIGINT, price BIGINT, channel STRING, url VARCHAR(200),
            date_time TIMESTAMP(3), extra STRING, {_TIMES})""",
}
# q12 has windows of processing time, which have no batch answer
ALL = tuple(name for name in queries.QUERIES if name != "q12")


def flink(name: str) -> str:
    text = queries.text("flink", name)
    return text.replace("AS OF b.date_time", "AS OF PROCTIME()")


def risingwave() -> dict[str, str]:
    parts = Path(__file__).with_name("nexmark_risingwave.sql").read_text("utf-8").split("-- q")[1:]
    return {f"q{part.split()[0]}": part.partition("\n")[2].strip().rstrip(";") for part in parts}


@pytest.mark.parametrize("names", [SOME, pytest.param(ALL, marks=pytest.mark.slow)])
def test_queries_mean_the_same(tmp_path: Path, names: tuple[str, ...]) -> None:
    con = nexmark.batch(EVENTS, CONFIG)
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        for dialect, text in TABLES.items():
            pond.sql(text, dialect=dialect)
        _define(pond, {n: t for n, t in risingwave().items() if n in names}, "risingwave")
        _define(pond, {n: flink(n) for n in names}, "flink")
        pond.insert("side_input", nexmark.SIDE)
        pond.drain()
        for kind in nexmark.KINDS:
            pond.insert(kind, generate(kind, 0, EVENTS, CONFIG))
        pond.drain()
        wrong = {}
        for dialect in TABLES:
            for name in names:
                if found := compare.differences(con, queries.QUERIES[name], pond.read(f"{dialect}_{name}")):
                    wrong[dialect, name] = found
        assert wrong == {}


def _define(pond: Pond, texts: dict[str, str], dialect: str) -> None:
    pond.sql(
        ";".join(f"CREATE MATERIALIZED VIEW {dialect}_{n} AS {t}" for n, t in texts.items()), dialect=dialect
    )
