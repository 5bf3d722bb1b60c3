"""What another process does in the bank test: `run` runs the pond, `move` moves money until it is killed.

`python bank.py run POND` prints "ready" when the pond runs.
`python bank.py move POND SEED TIMES` makes so many transfers and prints how many were committed and aborted.
"""

from __future__ import annotations

import random
import sys
import time

import millpond
from millpond.errors import ConflictError, MillpondError, UnavailableError
from millpond.pond import Pond

ACCOUNTS = 8
START = 100


def create(pond: Pond) -> None:
    pond.sql("CREATE TABLE accounts (id int PRIMARY KEY, balance int)")
    pond.sql("CREATE TABLE transfers (client int, number int, amount int)")
    pond.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(balance) AS balance FROM accounts")
    pond.sql(f"INSERT INTO accounts SELECT i, {START} FROM range({ACCOUNTS}) r(i); FLUSH")


def run(path: str) -> None:
    with millpond.open(path, engine="inline", take_over=True, retain_epochs=100_000) as pond:
        pond.start()
        print("ready", flush=True)
        while True:
            time.sleep(1)
            pond.sql("SELECT 1")  # raises if the pond has stopped


def move(path: str, seed: int, times: int) -> None:
    chance = random.Random(seed)
    committed = aborted = 0
    with millpond.open(path, engine="inline") as pond:
        for number in range(times):
            try:
                transfer(pond, chance, seed, number)
                committed += 1
            except ConflictError:
                aborted += 1
            except UnavailableError:  # the process that runs the pond was killed: the outcome is unknown
                time.sleep(0.1)
    print(committed, aborted, flush=True)


def transfer(pond: Pond, chance: random.Random, client: int, number: int) -> None:
    """Move money, by one of three programs, never more than there is."""
    here, there = chance.sample(range(ACCOUNTS), 2)
    amount, kind = chance.randint(1, 30), chance.randrange(3)
    with pond.transaction() as tx:
        if kind == 0:  # decided in the client
            found = tx.sql(f"SELECT balance FROM accounts WHERE id = {here}").fetchall()[0][0]
            amount = min(amount, found)
            other = tx.sql(f"SELECT balance FROM accounts WHERE id = {there}").fetchall()[0][0]
            tx.insert("accounts", [{"id": here, "balance": found - amount}])
            tx.insert("accounts", [{"id": there, "balance": other + amount}])
        else:
            if kind == 1:  # checked when its turn comes
                tx.require(f"SELECT balance >= {amount} FROM accounts WHERE id = {here}", "too poor")
            else:
                amount = min(amount, tx.sql("SELECT min(balance) FROM accounts").fetchall()[0][0])
            tx.sql(f"UPDATE accounts SET balance = balance - {amount} WHERE id = {here}")
            tx.sql(f"UPDATE accounts SET balance = balance + {amount} WHERE id = {there}")
        tx.sql("INSERT INTO transfers VALUES (?, ?, ?)", params=[client, number, amount])


def check(pond: Pond) -> int:
    """No epoch shows a wrong total; returns the number of transfers."""
    for summary in pond.epochs(last=None):
        if summary.epoch < 2:
            continue
        at = f"AS OF EPOCH {summary.epoch}"
        rows = pond.sql(f"SELECT count(*), sum(balance), min(balance) FROM accounts {at}").fetchall()
        if rows[0][0] == 0:
            continue
        assert rows[0][:2] == (ACCOUNTS, ACCOUNTS * START) and rows[0][2] >= 0, (summary.epoch, rows)
        assert pond.sql(f"SELECT balance FROM total {at}").fetchall() == [(ACCOUNTS * START,)], summary.epoch
    twice = pond.sql("SELECT client, number FROM transfers GROUP BY ALL HAVING count(*) > 1").fetchall()
    assert not twice, f"executed twice: {twice}"
    assert pond.errors().num_rows == 0
    return int(pond.sql("SELECT count(*) FROM transfers").fetchall()[0][0])


if __name__ == "__main__":
    try:
        run(sys.argv[2]) if sys.argv[1] == "run" else move(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    except MillpondError as error:
        sys.exit(f"{type(error).__name__}: {error}")
