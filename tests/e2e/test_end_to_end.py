"""PostgreSQL changes -> views -> several targets at the same time, with kill -9: all equal the batch answer."""

from __future__ import annotations

import json
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.kafka.kafka_target import Committed
from tests.postgres.server import Database, Server
from tests.sql.fuzz.postgres import Missing

pytestmark = pytest.mark.e2e
EXAMPLE = Path(__file__).parents[2] / "examples" / "change_capture.py"
SHOP = (
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, country TEXT)",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, at TIMESTAMP, amount BIGINT)",
)
BY_COUNTRY = (
    "SELECT c.country, count(*), sum(o.amount)::BIGINT FROM orders o JOIN customers c ON c.id = o.customer"
    " GROUP BY c.country"
)
BY_HOUR = "SELECT date_trunc('hour', at), count(*), max(amount) FROM orders GROUP BY 1"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        found = Server()
    except Missing as error:
        pytest.skip(str(error))
    yield found
    found.close()


class Shop:
    """Random transactions of a shop."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database, self.rng, self.number = database, random.Random(seed), 0
        database.run(*SHOP)

    def transaction(self) -> None:
        rng, con = self.rng, self.database.con
        with con.transaction():
            for _ in range(rng.randint(1, 8)):
                kind, one = rng.random(), rng.randrange(1, 60)
                if kind < 0.15:
                    country = rng.choice(["CH", "NO", "JP", None])
                    con.execute(
                        "INSERT INTO customers VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET country = excluded.country",
                        [one % 12, country],
                    )
                elif kind < 0.7:
                    self.number += 1
                    at = f"2026-03-01 {rng.randrange(6):02d}:{rng.randrange(60):02d}:00"
                    con.execute(
                        "INSERT INTO orders VALUES (%s, %s, %s, %s)",
                        [self.number, rng.randrange(12), at, rng.randrange(100)],
                    )
                elif kind < 0.85:
                    con.execute(
                        "UPDATE orders SET amount = amount + 1, customer = %s WHERE id = %s", [one % 12, one]
                    )
                else:
                    con.execute("DELETE FROM orders WHERE id = %s", [one])


def newest_of(brokers: str) -> Counter[tuple[Any, ...]]:
    """The newest committed message of each key of the topic, without those whose newest is a tombstone."""
    newest: dict[bytes, bytes | None] = {}
    # The broker's default is one partition, so messages are in the order of the changes.
    reader = Committed(brokers, "by_country", 1)
    identities = Counter(dict(message.headers())["millpond-id"] for message in reader.read())
    assert max(identities.values()) == 1, "a change is there twice"
    for message in reader.messages:
        newest[message.key()] = message.value()
    reader.close()
    rows = [json.loads(value) for value in newest.values() if value is not None]
    return Counter((row["country"], row["orders"], row["amount"]) for row in rows)


def table_of(folder: Path) -> Counter[tuple[Any, ...]]:
    rows = deltalake.DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return Counter((row["window_start"].replace(tzinfo=None), row["orders"], row["largest"]) for row in rows)


def changes_of(folder: Path) -> Counter[tuple[Any, ...]]:
    """What a changelog in files adds up to."""
    signs = {"insert": 1, "update_after": 1, "delete": -1, "update_before": -1}
    found: Counter[tuple[Any, ...]] = Counter()
    for file in (folder / "changes").glob("*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found[row["country"], row["orders"], row["amount"]] += signs[row["_op"]]
    assert set(found.values()) <= {0, 1}, "a change is there twice, or was lost"
    return Counter({row: n for row, n in found.items() if n})


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10])
def test_all_targets_equal_the_batch_answer(kills: int, server: Server, brokers: str, tmp_path: Path) -> None:
    shop, reports = Database(server, f"shop{kills}"), Database(server, f"reports{kills}")
    writer, rng = Shop(shop, kills), random.Random(kills)
    addresses = {"SHOP": shop.address, "REPORTS": reports.address, "BROKERS": brokers}
    environment = {**os.environ, **addresses, "PYTHONHASHSEED": "0"}
    # Each target: what it holds, and the query whose answer that must be.  Another one is one line.
    targets: dict[str, tuple[Callable[[], Counter[Any]], str]] = {
        "reports_by_country": (lambda: Counter(reports.rows("SELECT * FROM by_country")), BY_COUNTRY),
        "reports_by_hour": (lambda: Counter(reports.rows("SELECT * FROM by_hour")), BY_HOUR),
        "topic": (lambda: newest_of(brokers), BY_COUNTRY),
        "lake": (lambda: table_of(tmp_path / "by_hour"), BY_HOUR),
        "changes": (lambda: changes_of(tmp_path), BY_COUNTRY),
    }
    assert targets.keys() == runpy.run_path(str(EXAMPLE))["TARGETS"].keys()

    def started(*more: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(EXAMPLE), str(tmp_path), *more]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    for _ in range(10):
        writer.transaction()
    for _ in range(kills):
        one = started()
        assert one.stdout is not None
        try:
            assert "epoch" in one.stdout.readline(), "it has begun"
            until = time.monotonic() + rng.random() * 1.5
            while time.monotonic() < until:
                writer.transaction()
                time.sleep(0.01)
            assert one.poll() is None, "it ended by itself"
        finally:
            os.kill(one.pid, signal.SIGKILL)
            one.wait()
            one.stdout.close()
        writer.transaction()
    last = started("--once")
    assert last.stdout is not None
    with last.stdout:
        last.stdout.read()
    assert last.wait() == 0
    for name, (held, query) in targets.items():
        assert held() == Counter(shop.rows(query)), name
    assert shop.rows("SELECT count(*) FROM orders")[0][0] > 5
