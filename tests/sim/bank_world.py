"""The world of `world.py` with transactions: a client moves money between accounts and notes each move.

What must hold at every committed epoch: every balance is what the noted moves say, and none is negative.
So a transaction that is executed by halves, twice, or although it was aborted, is seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from millpond.errors import UnavailableError
from millpond.operators.bag import Bag
from millpond.operators.scan import Scan
from millpond.operators.upsert import Upsert
from millpond.plan.nodes import Plan, View
from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sources.inbox_table import SEQUENCE, InboxTable
from millpond.state import inbox
from millpond.state.manifest.snapshot import Snapshot

from .world import World

ACCOUNTS = 4
START = 10
_BALANCES = pa.schema([("id", pa.int64()), ("n", pa.int64())])
_MOVES = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("n", pa.int64())])


class BankWorld(World):
    moved = 0  # transfers that some epoch shows

    def _plan(self) -> Plan:
        plan = super()._plan()
        for name, schema, key in (("accounts", _BALANCES, ("id",)), ("moves", _MOVES, ())):
            source = InboxTable(schema)
            plan, scan = plan.with_node(f"{name}_in", Scan(source, source.schema, False), ())
            held = Upsert(key, SEQUENCE) if key else Bag(SEQUENCE)
            plan, step = plan.with_node(name, held, (scan,))
            columns = tuple(SqlColumn(n, "BIGINT") for n in schema.names)
            plan = plan.with_view(View(name, step, f"{name}/rows"))
            plan = plan.with_object(SqlObject("table", name, columns, key, step=step, scan=scan))
        rows = [{"id": n, "n": START} for n in range(ACCOUNTS)]
        inbox.append(
            self.store, "rows", {"table": "accounts_in", "rows": ACCOUNTS}, _payload(rows, _BALANCES)
        )
        return plan

    def plan_of(self, catalog: str | None) -> Plan:
        return replace(super().plan_of(catalog), objects=self.full.objects)

    def run_client(self) -> None:
        self.baton.spawn("bank", self.run_bank)
        super().run_client()

    def run_bank(self) -> None:
        while self.items_left > 0:
            for _ in range(self.rng.randint(0, 8)):
                self.baton.pause()
            here, there = self.rng.sample(range(ACCOUNTS), 2)
            amount = self.rng.randint(1, 6)
            try:
                inbox.append(self.faulty(), inbox.TRANSACTION, *transfer(here, there, amount))
            except UnavailableError:
                continue

    def check_views(self, snapshot: Snapshot) -> None:
        super().check_views(snapshot)
        balances = {r["id"]: r["n"] for r in self._rows(snapshot, "accounts")}
        wanted = dict.fromkeys(balances, START)
        moves = self._rows(snapshot, "moves")
        self.moved = max(self.moved, len(moves))
        for move in moves:
            wanted[move["a"]] -= move["n"]
            wanted[move["b"]] += move["n"]
        assert balances == wanted and all(n >= 0 for n in balances.values()), (
            f"epoch {snapshot.epoch}: {balances}, and the moves give {wanted}"
        )

    def _rows(self, snapshot: Snapshot, name: str) -> list[dict[str, Any]]:
        (spec,) = self.plan.nodes[name].binding.tables
        found: list[dict[str, Any]] = snapshot.scan(spec, spec.schema.names).to_pylist()
        return found


def transfer(here: int, there: int, amount: int) -> tuple[dict[str, Any], bytes]:
    """The entry of a transaction; its condition stands between its changes."""
    payload = _payload([{"a": here, "b": there, "n": amount}], _MOVES)
    items = [
        _update(here, -amount),
        {"verb": "require", "sql": f"SELECT n >= 0 FROM accounts WHERE id = {here}", "now_us": 0},
        _update(there, amount),
        {"verb": "rows", "table": "moves_in", "name": "moves", "rows": 1, "at": [0, len(payload)]},
    ]
    return {"items": items}, payload


def _update(account: int, more: int) -> dict[str, Any]:
    sql = f"UPDATE accounts SET n = n + {more} WHERE id = {account}"
    return {
        "verb": "update",
        "table": "accounts_in",
        "name": "accounts",
        "sql": sql,
        "reads": [],
        "now_us": 0,
        "keys": [[account]],
        "count": 1,
    }


def _payload(rows: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    weighted = schema.append(pa.field("_w", pa.int64()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, weighted) as writer:
        writer.write_table(pa.Table.from_pylist([{**row, "_w": 1} for row in rows], schema=weighted))
    raw: bytes = sink.getvalue().to_pybytes()
    return raw
