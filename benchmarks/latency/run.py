"""End-to-end latency: the age of the newest event in a committed view, at a fixed rate, system by system.

Law: every system follows the same files as they appear, on the same cores, in a process of its own, one after
the other. Results of windows are compared with the batch answer in the very run that is timed. A system that
cannot keep up with the rate is told as such, not left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import called
from benchmarks.contenders import Contender, choose
from benchmarks.latency import feed, outcome
from benchmarks.latency.age import Ages, Delays
from benchmarks.latency.outcome import Latency
from benchmarks.nexmark.queries import QUERIES, Query

QUERY_NAMES = "q1,q5,q7,q8"
RATES = "1000,10000,50000"


CONTENDERS = {
    one.name: one
    for one in (
        Contender("millpond", "benchmarks.latency.on_millpond"),
        Contender("flink", "benchmarks.latency.on_flink"),
        Contender(
            "flink-100ms",
            "benchmarks.latency.on_flink",
            ("--checkpoints", "100ms", "--name", "flink-100ms"),
        ),
        Contender("spark", "benchmarks.latency.on_spark"),
    )
}


def measured(
    contender: Contender, query: Query, rate: int, seconds: int, warm: int, cores: int, limit_s: float
) -> Latency:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "outcome.json")
        how = {
            "query": query.name,
            "rate": rate,
            "seconds": seconds,
            "warm": warm,
            "cores": cores,
            "out": out,
        }
        words = [word for name, value in how.items() for word in (f"--{name}", str(value))]
        called.call(contender.module, [*words, *contender.arguments], limit_s)
        return outcome.read(out)


def _age(ages: Ages | None) -> tuple[str, str]:
    if ages is None:
        return "-", "-"
    mark = " behind" if ages.behind else ""
    return f"{ages.p50_ms:,.0f}", f"{ages.p99_ms:,.0f}{mark}"


def _delay(delays: Delays | None) -> tuple[str, str]:
    if delays is None or delays.p50_ms is None or delays.max_ms is None:
        return "-", "-"
    return f"{delays.p50_ms:,.0f}", f"{delays.max_ms:,.0f} ({delays.results})"


def table(query: str, rate: int, outcomes: Sequence[Latency]) -> Table:
    made = Table(
        title=f"{query} at {rate:,} events/s: {QUERIES[query].asks}",
        box=box.SIMPLE,
        caption="in ms: age of the newest event in the view; results after the event that closes a window",
    )
    made.add_column("system", no_wrap=True)
    columns = ("age p50", "age p99", "result p50", "max (of)", "commits", "CPU s", "anon MiB")
    for column in (*columns, "others"):
        made.add_column(column, justify="right", no_wrap=True)
    for one in outcomes:
        name = one.name if not one.wrong else f"{one.name} (wrong)"
        made.add_row(
            name,
            *_age(one.age),
            *_delay(one.results),
            str(one.age.commits),
            f"{one.cpu_seconds:.1f}",
            f"{one.peak_rss_anon_bytes / 2**20:,.0f}",
            f"{one.other_cpu_seconds:.1f}",
        )
        if one.emitted is not None:
            row = (*_age(one.emitted), *_delay(one.emitted_results))
            made.add_row("  not yet durable", *row, "", "", "", "")
    return made


def run(
    asked: Sequence[Query],
    rates: Sequence[int],
    seconds: int,
    warm: int,
    against: Sequence[str],
    millpond: bool,
    cores: int,
    console: Console,
) -> None:
    contenders = choose(CONTENDERS, against, millpond)
    wanted = {"queries": [query.name for query in asked], "rates": list(rates), "seconds": seconds}
    record = called.Record("latency", {**wanted, "warm_seconds": warm, "tick_ms": 100})
    found: list[Latency] = []
    for rate in rates:
        feed.ensure(feed.Feed(rate, warm + seconds))
    for query in asked:
        for rate in rates:
            for contender in contenders:
                console.print(f"{query.name} at {rate:,} events/s: {contender.name}")
                try:
                    one = measured(contender, query, rate, seconds, warm, cores, 300.0 + 2 * (warm + seconds))
                except called.FailedError as error:
                    console.print(f"  {error}", markup=False, highlight=False)
                    record.failed.append(
                        {"system": contender.name, "query": query.name, "rate": rate, "why": str(error)}
                    )
                else:
                    age = f"age p50 {one.age.p50_ms:,.0f} ms, p99 {one.age.p99_ms:,.0f} ms"
                    console.print(f"  {age}, {one.other_cpu_seconds:.1f} CPU s by others")
                    for wrong in one.wrong:
                        console.print(f"  wrong: {wrong}", markup=False, highlight=False)
                    found.append(one)
                    record.outcomes.append(one.as_json())
                record.save()
    for query in asked:
        for rate in rates:
            mine = [one for one in found if (one.query, one.rate) == (query.name, rate)]
            if mine:
                console.print(table(query.name, rate, mine))
    record.told(console)
