"""Python functions in SQL run in Spark's workers, and give there what they give inline (laws 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import millpond

QUERIES = (
    "SELECT * FROM q14 ORDER BY ALL LIMIT 50",
    "SELECT count(*), sum(c) FROM q14",
    "SELECT * FROM spreads ORDER BY ALL LIMIT 50",
    "SELECT * FROM letters ORDER BY ALL",
)


def run(path: Path, **settings: Any) -> list[Any]:
    by = "c"  # what a function takes from around it goes with it

    def c_count(extra: str) -> int:
        if extra.startswith("a"):
            raise ValueError("no a")
        return extra.count(by)

    def letters(text: str) -> Iterator[tuple[str, int]]:
        yield from {letter: text.count(letter) for letter in text[:3]}.items()

    class Spread:
        def __init__(self) -> None:
            self.values: list[int] = []

        def accumulate(self, x: int) -> None:
            self.values.append(x)

        def finish(self) -> int:
            return max(self.values) - min(self.values)

    with millpond.open(path, **settings) as pond:
        pond.function(c_count)
        pond.function("letters", letters, returns={"letter": str, "n": int})
        pond.function("spread", Spread)
        pond.function("cents", lambda x: pc.multiply(x, 100), arguments=[int], returns=int, vectorised=True)
        pond.sql("""
            CREATE SOURCE bid WITH (connector = 'nexmark', type = 'bid', events = 2000);
            CREATE MATERIALIZED VIEW q14 AS SELECT auction, cents(price) AS price, c_count(extra) AS c FROM bid;
            CREATE MATERIALIZED VIEW spreads AS SELECT bidder, spread(price) AS s FROM bid GROUP BY bidder;
            CREATE MATERIALIZED VIEW letters_of AS SELECT l.letter, sum(l.n) AS n FROM bid, letters(extra) AS l
                GROUP BY l.letter;
            CREATE VIEW letters_seen AS SELECT * FROM letters_of;
            FLUSH
        """)
        failed = sorted(pond.errors("q14").column("reason").to_pylist())
        assert failed and "c_count(): ValueError: no a (test_functions.py:" in failed[0]
        answers = [pond.sql(q.replace("FROM letters", "FROM letters_seen")).fetchall() for q in QUERIES]
        return [*answers, failed]


def test_python_functions_on_spark(session: Any, tmp_path: Path) -> None:
    inline = run(tmp_path / "inline", engine="inline")
    assert inline[1][0][1] > 0 and len(inline[3]) > 5
    assert run(tmp_path / "spark", spark=session, parallelism=2) == inline
