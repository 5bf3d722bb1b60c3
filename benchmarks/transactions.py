"""Transactions per second: clients move money between accounts, each transfer is one transaction.

Law: after every run the total is what it was.  Clients are threads of the process that runs the
pond; a transfer reads two rows and changes two (`read`), or changes two without reading (`blind`).
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import report
from millpond.errors import ConflictError
from millpond.pond import Pond

ACCOUNTS = 1_000
START = 100


@dataclass(frozen=True)
class Transfers:
    kind: str
    clients: int
    committed: int
    aborted: int
    seconds: float
    p50_ms: float
    cpu_ms: float  # of clients and pond, for each transaction
    epochs: int

    @property
    def per_s(self) -> float:
        return self.committed / self.seconds


def run(console: Console, clients: list[int], seconds: float) -> list[Transfers]:
    """Measure each number of clients, print a table, and store the figures."""
    found: list[Transfers] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        millpond.open(Path(folder) / "pond", engine="inline") as pond,
    ):
        pond.sql("CREATE TABLE accounts (id int PRIMARY KEY, balance int)")
        pond.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(balance) AS n FROM accounts")
        pond.sql(f"INSERT INTO accounts SELECT i, {START} FROM range({ACCOUNTS}) r(i); FLUSH")
        pond.start()
        for kind in ("blind", "read"):
            for count in clients:
                found.append(_measure(pond, kind, count, seconds))
        pond.stop()
        total = pond.sql("SELECT n FROM total").fetchall()
        assert total == [(ACCOUNTS * START,)], total
    table = Table("transfers", "clients", "transactions/s", "p50 ms", "CPU ms", "aborted", "per epoch")
    for one in found:
        each = one.committed / max(1, one.epochs)
        table.add_row(
            one.kind,
            str(one.clients),
            f"{one.per_s:.0f}",
            f"{one.p50_ms:.0f}",
            f"{one.cpu_ms:.0f}",
            str(one.aborted),
            f"{each:.1f}",
        )
    console.print(table)
    report.keep("transactions", {"transfers": [asdict(one) for one in found]})
    return found


def _measure(pond: Pond, kind: str, clients: int, seconds: float) -> Transfers:
    took: list[float] = []
    aborted: list[int] = []
    first, until = pond.epoch, time.monotonic() + seconds

    def work(client: int) -> None:
        chance = random.Random(client)
        while time.monotonic() < until:
            here, there = chance.sample(range(ACCOUNTS), 2)
            begun = time.perf_counter()
            try:
                with pond.transaction() as tx:
                    if kind == "read":
                        tx.sql("SELECT balance FROM accounts WHERE id = ?", params=[here])
                        tx.sql("SELECT balance FROM accounts WHERE id = ?", params=[there])
                    tx.sql("UPDATE accounts SET balance = balance - 1 WHERE id = ?", params=[here])
                    tx.sql("UPDATE accounts SET balance = balance + 1 WHERE id = ?", params=[there])
            except ConflictError:
                aborted.append(client)
            else:
                took.append(time.perf_counter() - begun)

    started, cpu = time.monotonic(), time.process_time()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lasted = time.monotonic() - started
    cpu_ms = (time.process_time() - cpu) * 1000 / max(1, len(took) + len(aborted))
    p50 = statistics.median(took) * 1000 if took else float("nan")
    return Transfers(kind, clients, len(took), len(aborted), lasted, p50, cpu_ms, pond.epoch - first)
