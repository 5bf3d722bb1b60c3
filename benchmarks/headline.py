"""The headline benchmark: `SELECT auction, count(*), sum(price) GROUP BY auction`, state durable.

Law: every contender gets the same files, the same cores and a process of its own, in turns and never two at
once; none is timed before its answer was found right. Where a contender has variants, the first turn tries
all (unless tuning is off: then only the first) and later turns repeat its best.

A contender is a module run as `python -m MODULE --input FOLDER --cores N` with `--out FILE` (time it; the
file is an Outcome) or `--verify FILE` (Parquet with auction, n, total: the final row of each key). Millpond's
is `benchmarks.millpond_headline`.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console

from benchmarks import data, outcome, report, verify
from benchmarks.contenders import choose
from benchmarks.outcome import Outcome

SMALL = data.Input(rows=40_000, keys=4_000, rows_per_file=5_000)


@dataclass(frozen=True)
class Contender:
    name: str
    module: str
    variants: tuple[tuple[str, ...], ...] = ((),)


def _spark() -> tuple[tuple[str, ...], ...]:
    return tuple(
        ("--files-per-trigger", str(files), "--shuffle-partitions", str(partitions))
        for files in (1, 2, 4)
        for partitions in (2, 4)
    )


CONTENDERS = {
    one.name: one
    for one in (
        Contender("millpond", "benchmarks.millpond_headline"),
        Contender("flink-heap", "benchmarks.peers.flink", (("--backend", "heap"),)),
        Contender("flink-rocksdb", "benchmarks.peers.flink", (("--backend", "rocksdb"),)),
        Contender("spark", "benchmarks.peers.spark_structured", _spark()),
        Contender("duckdb", "benchmarks.peers.duckdb_batch"),
    )
}


def _call(module: str, folder: Path, cores: int, *arguments: str) -> None:
    command = [sys.executable, "-m", module, "--input", str(folder), "--cores", str(cores), *arguments]
    subprocess.run(command, check=True, cwd=data.ROOT.parent)


def check(contender: Contender, variant: Sequence[str], folder: Path, cores: int) -> None:
    """Raises unless the variant's answer on `folder` is DuckDB's."""
    with tempfile.TemporaryDirectory() as place:
        found, expected = Path(place, "found.parquet"), Path(place, "expected.parquet")
        _call(CONTENDERS["duckdb"].module, folder, cores, "--verify", str(expected))
        _call(contender.module, folder, cores, "--verify", str(found), *variant)
        wrong = verify.differences(pq.read_table(found), pq.read_table(expected))
    if wrong:
        raise RuntimeError(f"{contender.name} {' '.join(variant)} gives a wrong answer: {'; '.join(wrong)}")


def timed(contender: Contender, variant: Sequence[str], folder: Path, cores: int) -> Outcome:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "outcome.json")
        _call(contender.module, folder, cores, "--out", str(out), *variant)
        return outcome.read(out)


@contextmanager
def alone() -> Iterator[None]:
    """Two runs at once would each measure the other."""
    with (data.scratch() / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            raise RuntimeError("another benchmark is running from this folder; wait for it to end") from held
        yield


def run(
    wanted: data.Input,
    against: Sequence[str],
    millpond: bool,
    cores: int,
    rounds: int,
    tune: bool,
    console: Console,
) -> None:
    """Verify, time in turns, save and show."""
    contenders = choose(CONTENDERS, against, millpond)
    if not tune:
        contenders = [replace(one, variants=one.variants[:1]) for one in contenders]
    record = report.Record("headline", datetime.now().astimezone(), wanted, report.machine())
    small, folder = data.ensure(SMALL), data.ensure(wanted)
    for contender in contenders:
        for variant in contender.variants:
            console.print(f"verify {contender.name} {' '.join(variant)}")
            check(contender, variant, small, cores)
    data.warm(folder)
    results: list[tuple[Contender, tuple[str, ...], Outcome]] = []
    for turn in range(rounds):
        for contender in contenders:
            mine = [(result, variant) for one, variant, result in results if one is contender]
            variants = contender.variants
            if turn > 0:
                variants = (max(mine, key=lambda pair: pair[0].rows_per_second)[1],)
            for variant in variants:
                console.print(f"turn {turn + 1}: {contender.name} {' '.join(variant)}")
                result = timed(contender, variant, folder, cores)
                rate, other = result.rows_per_second, result.other_cpu_seconds
                console.print(f"  {rate:,.0f} rows/s, {result.cpu_seconds:.1f} CPU s, {other:.1f} by others")
                results.append((contender, variant, result))
                record.save([one for _, _, one in results])
    record.show([one for _, _, one in results], console)
