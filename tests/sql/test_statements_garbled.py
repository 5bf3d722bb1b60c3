"""Garbled statements: each is done or refused with a reason, and the pond goes on (law 9)."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import millpond
from millpond.errors import InternalError, MillpondError
from tests.sampling import first

STATEMENTS = [
    "CREATE TABLE t (id int PRIMARY KEY, x int DEFAULT 3, g int GENERATED ALWAYS AS (x * 2), s text NOT NULL)",
    "CREATE TABLE e (k int, at timestamp, WATERMARK FOR at AS at - INTERVAL '5 seconds') APPEND ONLY",
    "CREATE OR REPLACE TABLE r (a map(text, int), b int[3], c enum('a', 'b'), d struct(x hugeint, y uuid[]))",
    "CREATE SOURCE b WITH (connector = 'nexmark', type = 'bid', events = 100)",
    "CREATE VIEW w AS SELECT id, x FROM t WHERE x > 0",
    "CREATE MATERIALIZED VIEW v AS SELECT s, sum(x) AS total FROM t GROUP BY s ORDER BY total DESC LIMIT 3",
    "CREATE MATERIALIZED VIEW c AS SELECT window_end, count(*) AS n FROM TUMBLE(e, at, INTERVAL '1 hour')"
    " GROUP BY window_end, window_start EMIT ON WINDOW CLOSE",
    "CREATE INDEX i ON t (s)",
    "CREATE SAVEPOINT p",
    "INSERT INTO t (id, s) VALUES (1, 'a'), ($1, :a) ON CONFLICT (id) DO UPDATE SET x = t.x + excluded.x",
    "INSERT INTO r VALUES (MAP {'k': 1}, [1, 2, 3], 'a', {'x': 1, 'y': []})",
    "INSERT INTO t SELECT id + 10, x, s FROM t, w WHERE w.id = t.id",
    "UPDATE t AS a SET x = (SELECT max(x) FROM w), s = s || 'é' WHERE a.id IN (1, 2) AND now() > '2000-01-01'",
    "DELETE FROM t USING w WHERE t.id = w.id AND w.x = 5",
    "SELECT total, row_number() OVER (ORDER BY total) FROM v AS OF EPOCH 1 WHERE s = ? UNION ALL SELECT 1, 2",
    "SELECT x FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2090-01-01' WHERE id = 1",
    "SUBSCRIBE v SINCE EPOCH 0 UNTIL EPOCH 3",
    "EXPLAIN ANALYZE v",
    "DESCRIBE MATERIALIZED VIEW v",
    "SHOW CREATE TABLE t",
    "ALTER MATERIALIZED VIEW v RENAME TO v2",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS n int NOT NULL DEFAULT 1 + 1, RENAME COLUMN s TO s2",
    "ALTER TABLE t DROP COLUMN x CASCADE, ADD x text",
    "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT s, sum(x) AS total FROM t GROUP BY s",
    "UPDATE t SET x = x + 1 WHERE id = 1 RETURNING *, x + 1 AS more",
    "SHOW JOBS",
    "DROP TABLE IF EXISTS t, e CASCADE",
    "FLUSH",
]
PIECES = r"\w+|'[^']*'|[^\w\s]|\s+"


def garbled(rng: random.Random, words: list[str]) -> str:
    found = re.findall(PIECES, rng.choice(STATEMENTS))
    for _ in range(rng.choice([1, 1, 2, 3])):
        place = rng.randrange(len(found))
        match rng.randrange(4):
            case 0:
                del found[place]
            case 1:
                found.insert(place, rng.choice(words) + " ")
            case 2:
                found[place] = rng.choice(words)
            case _:
                found = found[: place + 1]
        if not found:
            return ";"
    return "".join(found)


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_garbled_statements_are_done_or_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    words = [w for s in STATEMENTS for w in re.findall(PIECES, s) if w.strip()]
    with millpond.open(tmp_path / "p", engine="inline", durable=False) as pond:
        for sql in STATEMENTS[:9]:
            pond.sql(sql)
        for _ in range(60):
            sql = garbled(rng, words)
            try:
                pond.sql(sql, params=rng.choice([None, [1, 2], {"a": "x"}])).fetchall()
            except InternalError as error:
                raise AssertionError(sql) from error
            except MillpondError as error:
                assert error.message
            except Exception as error:
                raise AssertionError(sql) from error
        pond.sql("CREATE TABLE IF NOT EXISTS t9 (a int); INSERT INTO t9 VALUES (1); FLUSH")
        assert pond.sql("SELECT * FROM t9").fetchall() == [(1,)]
