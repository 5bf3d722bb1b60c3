"""What the accounted input of every epoch is, worked out from the manifests alone.

The model is told what was put into the sources and the tables; a manifest says
which of that an epoch admitted.  From there it goes its own way: which
retractions are refused, which rows are late, what a keyed table holds.
"""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import pyarrow as pa

from millpond.delta import weights
from millpond.state.manifest.manifest import Manifest
from tests.oracle.pipeline import DELAY_S, A, E, M, T

Row = tuple[Any, ...]
Bag = Counter[Row]
EPOCH = datetime.datetime(1970, 1, 1)


def micros(at: datetime.datetime) -> int:
    return (at - EPOCH) // datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class Account:
    """The accounted input after one epoch."""

    a: Bag = field(default_factory=Counter)
    e: Bag = field(default_factory=Counter)
    m: Bag = field(default_factory=Counter)
    t: dict[Any, Row] = field(default_factory=dict)
    late: Bag = field(default_factory=Counter)
    bound: int | None = None  # of e's watermark
    refused: Counter[str] = field(default_factory=Counter)  # error rows by step


class Model:
    def __init__(self) -> None:
        self.items: dict[str, list[pa.Table]] = {"a": [], "e": []}
        self.entries: dict[int, tuple[str, int, list[Row]]] = {}  # number -> table, weight, rows
        self.accounts: dict[int, Account] = {}
        self._oracle = duckdb.connect(":memory:", config={"threads": 1})
        self._shown: Account | None = None

    def close(self) -> None:
        self._oracle.close()

    # -- what an epoch admitted ---------------------------------------------------------

    def commit(self, manifest: Manifest) -> None:
        """Account for one more epoch."""
        if manifest.epoch == 0:
            self.accounts[0] = Account()
            return
        if manifest.kind == "rollback":
            assert manifest.restores is not None
            self.accounts[manifest.epoch] = self.accounts[manifest.restores]
            return
        account = self.accounts[manifest.epoch - 1]
        for step, splits in sorted(manifest.admitted.items()):
            if step == "inbox":
                for table in ("t", "m"):
                    mine = [s for s in splits if self.entries[s["entry"]][0] == table]
                    if mine:
                        account = getattr(self, f"_admit_{table}")(account, mine)
            else:
                account = getattr(self, f"_admit_{step}")(account, splits)
        self.accounts[manifest.epoch] = account

    def fork(self, epoch: int) -> None:
        """Go on as a new pond that begins with what an epoch accounts for; its inbox is empty."""
        self.accounts = {0: self.accounts[epoch]}
        self.entries = {}

    def _admit_a(self, account: Account, splits: list[dict[str, Any]]) -> Account:
        held = account.a.copy()
        for split in splits:
            held.update(_bag(self.items["a"][split["item"]]))
        return _refuse(account, "a", held)

    def _admit_m(self, account: Account, splits: list[dict[str, Any]]) -> Account:
        held = account.m.copy()
        for split in splits:
            _, weight, rows = self.entries[split["entry"]]
            for row in rows:
                held[row] += weight
        return _refuse(account, "m", held)

    def _admit_t(self, account: Account, splits: list[dict[str, Any]]) -> Account:
        held, refused = dict(account.t), account.refused.copy()
        for number in sorted(split["entry"] for split in splits):
            _, weight, rows = self.entries[number]
            for row in rows:
                if weight > 0:
                    held[row[0]] = row
                elif held.pop(row[0], None) is None:
                    refused["t.rows"] += 1
        return replace(account, t=held, refused=refused)

    def _admit_e(self, account: Account, splits: list[dict[str, Any]]) -> Account:
        on_time, late, refused = account.e.copy(), account.late.copy(), account.refused.copy()
        newest = None
        for split in splits:
            for row, weight in _bag(self.items["e"][split["item"]]).items():
                if row[0] is None:
                    refused["e.watermark"] += weight
                    continue
                at = micros(row[0])
                if account.bound is not None and at < account.bound:
                    late[row] += weight
                else:
                    on_time[row] += weight
                    newest = at if newest is None else max(newest, at)
        bound = account.bound
        if newest is not None:
            bound = newest - DELAY_S * 10**6 if bound is None else max(bound, newest - DELAY_S * 10**6)
        return replace(account, e=on_time, late=late, bound=bound, refused=refused)

    # -- the batch answer ----------------------------------------------------------------

    def ask(self, epoch: int, sql: str) -> pa.Table:
        """A batch query over the accounted input of an epoch."""
        account = self.accounts[epoch]
        if account is not self._shown:
            rows = {
                "a": (A, account.a),
                "e": (E, account.e),
                "m": (M, account.m),
                "t": (T, Counter(account.t.values())),
            }
            for name, (schema, bag) in rows.items():
                self._oracle.register(name, _table(schema, bag))
            self._shown = account
        bound = -(2**62) if account.bound is None else account.bound
        return self._oracle.sql(sql.replace("{bound}", str(bound))).to_arrow_table()


def _bag(table: pa.Table) -> Bag:
    found: Bag = Counter()
    names = [name for name in table.column_names if name != "_w"]
    for row, weight in zip(table.select(names).to_pylist(), weights(table).tolist(), strict=True):
        found[tuple(row.values())] += weight
    return found


def _refuse(account: Account, name: str, held: Bag) -> Account:
    refused = account.refused.copy()
    refused[f"{name}.rows"] += -sum(w for w in held.values() if w < 0)
    kept: dict[str, Any] = {name: Counter({r: w for r, w in held.items() if w > 0})}
    return replace(account, refused=refused, **kept)


def _table(schema: pa.Schema, bag: Bag) -> pa.Table:
    rows = list(bag.elements())
    return pa.table([pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)], schema=schema)
