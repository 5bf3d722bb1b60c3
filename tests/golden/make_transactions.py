"""Makes a golden pond of inbox entries that hold transactions, some executed and some still waiting.

    python tests/golden/make_transactions.py transactions-1

Run it once for each form of these entries, with the code that wrote it first.  `test_transactions.py` lets
today's code read, replay and execute them.  A golden pond is never made again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import millpond
from millpond.clock import ManualClock

HERE = Path(__file__).parent
START_US = 1_767_603_600_000_000
TABLES = ("accounts", "moves", "log", "members")

SQL = """
CREATE TABLE accounts (id int PRIMARY KEY, balance decimal(10,2), seen timestamptz DEFAULT now());
CREATE TABLE moves (a int, b int, amount decimal(10,2));
CREATE TABLE log (line text) APPEND ONLY;
CREATE TABLE members (id serial PRIMARY KEY, mail text UNIQUE, age int CHECK (age >= 18));
CREATE MATERIALIZED VIEW total AS SELECT sum(balance) AS balance FROM accounts;
INSERT INTO accounts (id, balance) VALUES (1, 100), (2, 50), (3, 0);
"""

WAITING = (
    "UPDATE accounts SET balance = balance - 10 WHERE id = 1; UPDATE accounts SET balance = balance + 10 "
    "WHERE id = 3; INSERT INTO moves VALUES (1, 3, 10); INSERT INTO log VALUES ('three')",
    "MERGE INTO accounts a USING (SELECT b, sum(amount) AS s FROM moves GROUP BY b) m ON a.id = m.b "
    "WHEN MATCHED AND s > 20 THEN UPDATE SET balance = balance + 1 WHEN MATCHED THEN DO NOTHING",
    "INSERT INTO members (mail, age) VALUES ('cid@x', 30), ('dan@x', NULL)",
    "INSERT INTO members (mail, age) VALUES ('ann@x', 30)",  # refused: it is there
    "TRUNCATE moves; INSERT INTO log SELECT 'after ' || count(*) FROM accounts",
)


def build(folder: Path) -> None:
    clock = ManualClock(START_US)
    with millpond.open(folder, engine="inline", clock=clock, durable=False, retain_epochs=100) as pond:
        pond.sql(f"{SQL} FLUSH")
        with pond.transaction() as tx:
            (money,) = tx.sql("SELECT balance FROM accounts WHERE id = 2").fetchone() or (0,)
            tx.require("SELECT balance >= 25 FROM accounts WHERE id = 1", "not enough")
            tx.sql("UPDATE accounts SET balance = balance - 25 WHERE id = 1 RETURNING balance")
            tx.insert("accounts", [{"id": 2, "balance": money + 25, "seen": None}])
            tx.sql("INSERT INTO moves VALUES (1, 2, 25); INSERT INTO log VALUES ('one')")
        try:
            with pond.transaction() as tx:
                tx.sql("SELECT balance FROM accounts WHERE id = 1")
                tx.sql("DELETE FROM accounts")
                pond.sql("UPDATE accounts SET balance = balance + 0.5 WHERE id = 1; FLUSH")
        except millpond.ConflictError:
            pond.sql("INSERT INTO log VALUES ('two')")
        pond.sql("INSERT INTO members (mail, age) VALUES ('ann@x', 20); FLUSH")
        pond.insert("members", [{"mail": "bob@x", "age": 50}, {"mail": "kid@x", "age": 7}])
        pond.sql("FLUSH")
        for text in WAITING:
            pond.sql(text)


def main(name: str) -> None:
    target = HERE / name
    target.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "pond")
        with tarfile.open(target / "pond.tar.xz", "w:xz") as archive:
            for path in sorted((Path(folder) / "pond").rglob("*")):
                archive.add(path, str(path.relative_to(Path(folder) / "pond")), recursive=False)
        copy = Path(folder) / "copy"
        shutil.copytree(Path(folder) / "pond", copy)
        with millpond.open(copy, engine="inline", clock=ManualClock(START_US), durable=False) as pond:
            before = {name: shown(pond, name) for name in TABLES}
            pond.sql("FLUSH")
            after = {name: shown(pond, name) for name in TABLES}
    (target / "expected.json").write_text(json.dumps({"before": before, "after": after}, indent=1) + "\n")


def shown(pond: millpond.Pond, table: str) -> list[str]:
    return sorted(map(str, pond.sql(f"SELECT * FROM {table}").fetchall()))


if __name__ == "__main__":
    main(sys.argv[1])
