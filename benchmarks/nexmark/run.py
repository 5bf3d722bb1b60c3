"""Nexmark against peers: every query on every system, the same files or topics, the same cores, in turns.

Law: a process times one query of one system, and never two run at once; turn by turn the systems follow each
other on a query. Nothing is timed whose answer on a small input differs from DuckDB's, Millpond's on a larger
one as well: what a system refuses, and what it gets wrong, is told beside the numbers. A run that fails is
told as well and ends that system's part in the query, not the benchmark; so is one that takes too long.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from benchmarks import called, outcome
from benchmarks.contenders import Contender, choose
from benchmarks.nexmark import command, compare, events, topics
from benchmarks.nexmark.queries import Query
from benchmarks.nexmark.report import Record
from benchmarks.nexmark.topics import Topics
from benchmarks.outcome import Outcome

# At 200 events a second of event time the small input spans 100 s: windows open and close in it, and no two
# bids have the same time, so every query has one answer.
SMALL = events.Events(20_000, events_per_file=4_000, events_per_second=200)
# Millpond takes other ways where rows are many (pieces, dense keys, frames in files): these are checked, too.
MANY = events.Events(600_000, events_per_file=60_000, events_per_second=200)
VERIFY_S = 3600.0


CONTENDERS = {
    one.name: one
    for one in (
        Contender("millpond", "benchmarks.nexmark.on_millpond"),
        Contender("flink", "benchmarks.nexmark.on_flink", ("--backend", "heap")),
        Contender("flink-rocksdb", "benchmarks.nexmark.on_flink", ("--backend", "rocksdb")),
        Contender("spark", "benchmarks.nexmark.on_spark", ("--files-per-trigger", "4")),
        Contender("duckdb", "benchmarks.nexmark.on_duckdb"),
    )
}


@dataclass(frozen=True)
class Input:
    """The events as files, and as topics where they are to be read from there."""

    folder: Path
    topics: Topics | None = None

    @property
    def arguments(self) -> list[str]:
        found = ["--input", str(self.folder)]
        if self.topics is not None:
            found += ["--brokers", self.topics.brokers, "--topics", self.topics.prefix]
        return found


def made(wanted: events.Events, brokers: str | None) -> Input:
    folder = events.ensure(wanted)
    return Input(folder, None if brokers is None else topics.ensure(wanted, folder, brokers))


def _call(
    contender: Contender, given: Input, asked: Sequence[Query], cores: int, limit_s: float, *arguments: str
) -> None:
    names = ",".join(query.name for query in asked)
    how = [*given.arguments, "--queries", names, "--cores", str(cores), *contender.arguments]
    called.call(contender.module, [*how, *arguments], limit_s)


def check(contender: Contender, asked: Sequence[Query], given: Input, cores: int) -> dict[str, str]:
    """Why a query is not timed, by its name: what the system said instead of an answer, or what is wrong."""
    connection = compare.connect(given.folder, cores)
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        try:
            _call(contender, given, asked, cores, VERIFY_S, "--verify", place)
        except called.FailedError as error:
            return {query.name: f"failed: {error}" for query in asked}
        for query in asked:
            answer = command.answer(Path(place), query)
            if isinstance(answer, str):
                found[query.name] = f"refused: {answer}"
            elif wrong := compare.differences(connection, query, answer):
                found[query.name] = f"wrong: {'; '.join(wrong)}"
    return found


def timed(contender: Contender, query: Query, given: Input, cores: int, limit_s: float) -> Outcome | str:
    """The outcome, or why there is none."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "outcome.json")
        try:
            _call(contender, given, [query], cores, limit_s, "--out", str(out))
        except called.FailedError as error:
            return f"failed: {error}"
        return outcome.read(out)


def run(
    wanted: events.Events,
    asked: Sequence[Query],
    against: Sequence[str],
    millpond: bool,
    cores: int,
    rounds: int,
    limit_s: float,
    verify_only: bool,
    console: Console,
    brokers: str | None = None,
) -> None:
    """Verify, time in turns, save and show; with brokers, events are read from topics there."""
    contenders = choose(CONTENDERS, against, millpond)
    small = made(SMALL, brokers)
    source = "parquet" if brokers is None else "kafka"
    record = Record(datetime.now().astimezone(), wanted, [one.name for one in contenders], source)
    for contender in contenders:
        console.print(f"verify {contender.name}")
        left = check(contender, asked, small, cores)
        if contender.name == "millpond":
            sound = [query for query in asked if query.name not in left]
            left |= check(contender, sound, made(MANY, brokers), cores)
        for query in asked:
            if query.name in left:
                console.print(f"  {query.name} {left[query.name]}", markup=False, highlight=False)
                record.leave_out(contender.name, query.name, left[query.name])
        console.print(f"  {len(asked) - len(left)} of {len(asked)} queries are right")
    if verify_only:
        return
    given = made(wanted, brokers)
    events.warm(given.folder)
    for query in asked:
        for turn in range(rounds):
            for contender in contenders:
                if record.left_out(contender.name, query.name):
                    continue
                console.print(f"{query.name}, turn {turn + 1}: {contender.name}")
                result = timed(contender, query, given, cores, limit_s)
                if isinstance(result, str):
                    console.print(f"  {result}", markup=False, highlight=False)
                    record.leave_out(contender.name, query.name, result)
                else:
                    used = f"{result.cpu_seconds:.1f} CPU s, {result.other_cpu_seconds:.1f} by others"
                    console.print(f"  {result.rows_per_second:,.0f} events/s, {used}")
                    record.outcomes.append(result)
                record.save()
    record.show(console)
