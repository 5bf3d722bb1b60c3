"""What the tests of the harness test: user code with every kind of state, timer and output."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millpond import (
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    Pond,
    Process,
    ProcessContext,
    ReducingState,
    ValueState,
)

TRADES = {"ts": dt.datetime, "user": str, "shop": str, "amount": float}
LIMITS = {"shop": str, "limit": float}


@dataclass
class Trade:
    shop: str
    amount: float


def _mean(acc: list[float]) -> float | None:
    return acc[0] / acc[1] if acc[1] else None


class Watch(Process):
    """Of every user: totals, recent trades, shops; alerts above a limit; and when they fall silent."""

    total = ValueState(float, default=0.0)
    recent = ListState(Trade)
    shops = MapState(str, int)
    notes = ValueState(default=list)  # untyped
    lately = ValueState(int, default=0, ttl="10s")
    visited = MapState(str, int, ttl="1m", clock="processing")
    largest = ReducingState(max, float)
    mean = AggregatingState(  # type: ignore[var-annotated]
        lambda: [0.0, 0.0], lambda acc, x: [acc[0] + x, acc[1] + 1], _mean, list[float]
    )
    limits = BroadcastState(str, float)

    def on_control(self, row: Any, ctx: ProcessContext) -> None:
        self.limits[row.shop] = row.limit

    def on_control_removed(self, row: Any, ctx: ProcessContext) -> None:
        self.limits.remove(row.shop)

    def on_row(self, row: Any, ctx: ProcessContext) -> Iterator[dict[str, Any]]:
        self.total.value += row.amount
        self.recent.append(Trade(row.shop, row.amount))
        self.recent.keep(3)
        self.shops[row.shop] = self.shops.get(row.shop, 0) + 1
        self.visited[row.shop] = 1
        self.notes.value.append(row.shop)
        self.lately.value += 1
        self.largest.add(row.amount)
        self.mean.add(row.amount)
        if row.amount < 0:
            raise ValueError("an amount below zero")
        if row.shop in self.limits and row.amount > self.limits[row.shop]:
            ctx.emit("alerts", {"user": row.user, "amount": row.amount})
        ctx.set_timer("silent", after=5)
        ctx.set_timer("check", after=2, clock="processing")
        yield {"user": row.user, "what": "trade", "total": self.total.value}

    def on_timer(self, timer: Any, ctx: ProcessContext) -> Iterator[dict[str, Any]]:
        yield {"user": ctx.key.user, "what": timer.name, "total": self.total.value}


def pipeline(pond: Pond, trades: Any) -> None:
    limits = pond.table("limits", _schema(LIMITS), key="shop")
    stream = pond.stream("trades", trades, event_time="ts", delay="1s")
    out = stream.key_by("user").process(
        Watch,
        schema={"user": str, "what": str, "total": float},
        sides={"alerts": {"user": str, "amount": float}},
        control=limits,
        id="watch",
    )
    out.view("out")
    out.side("alerts").view("alerts")
    stream.key_by("shop").aggregate(n="count(*)", total="sum(amount)").view("shops")


def _schema(like: Any) -> Any:
    from millpond.arguments.schemas import schema_of

    return schema_of(like)
