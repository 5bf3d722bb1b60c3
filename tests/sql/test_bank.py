"""The bank test: processes move money between accounts; no epoch ever shows a wrong total (laws 2 and 3)."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import millpond
from millpond.errors import ConflictError
from tests.sampling import seeds
from tests.sql import bank

PROGRAM = Path(__file__).parent / "bank.py"


def started(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_threads_move_money(tmp_path: Path) -> None:
    done: list[int] = []
    with millpond.open(tmp_path / "pond", engine="inline", retain_epochs=1000) as pond:
        bank.create(pond)
        pond.start()

        def work(client: int) -> None:
            chance = random.Random(client)
            for number in range(5):
                try:
                    bank.transfer(pond, chance, client, number)
                    done.append(number)
                except ConflictError:
                    continue

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pond.stop()
        assert bank.check(pond) == len(done) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 0, 3, "BANK_SEEDS"))
def test_four_processes_move_money_while_they_and_the_pond_are_killed(tmp_path: Path, seed: int) -> None:
    path, chance = str(tmp_path / "pond"), random.Random(seed)
    with millpond.open(path, engine="inline") as pond:
        bank.create(pond)
    runner = started("run", path)
    movers = [started("move", path, str(seed * 100 + n), "12") for n in range(4)]
    try:
        assert runner.stdout is not None and runner.stdout.readline() == "ready\n", runner.communicate()
        for kill in range(2):
            try:
                movers[kill].wait(timeout=chance.uniform(8, 14))
            except subprocess.TimeoutExpired:
                movers[kill].kill()  # in the middle of a transaction
            runner.kill()
            runner.wait()
            runner = started("run", path)
            assert runner.stdout is not None and runner.stdout.readline() == "ready\n", runner.communicate()
        told = [mover.communicate(timeout=400) for mover in movers[2:]]
    finally:
        for process in (runner, *movers):
            process.kill()
            process.wait()
    committed = sum(int(out.split()[0]) for out, _ in told)
    with millpond.open(path, engine="inline") as pond:
        pond.sql("FLUSH")
        assert bank.check(pond) >= committed > 0
