"""The keyed-state benchmark: for each record, Python reads and updates a state of its key and emits one row.

Law: every contender gets a prefix of the same files, the same cores and a process of its own, in turns and
never two at once; none is timed before the rows it emits were found right (`peers/emitted.py`, and the last
of each key against DuckDB). State is durable for all, what is emitted goes nowhere. Rates differ by three
orders of magnitude, so each contender has a bound on its rows, which the table tells; a prefix is whole
files.

A contender is a module run as `python -m MODULE --input FOLDER --cores N` with `--out` or `--verify`, as in
the headline benchmark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from benchmarks import data, headline, millpond_keyed_state
from benchmarks.contenders import choose
from benchmarks.keyed_state_report import Record, Section
from benchmarks.outcome import Outcome

SMALL = data.Input(rows=8_000, keys=800, rows_per_file=1_000)
SPARSE_KEYS = 100_000  # from here on most records of a batch bring a key of their own


@dataclass(frozen=True)
class Contender:
    name: str
    module: str
    arguments: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]
    sparse_rows: int
    dense_rows: int

    def rows(self, wanted: data.Input) -> int:
        return min(wanted.rows, self.sparse_rows if wanted.keys >= SPARSE_KEYS else self.dense_rows)


def _millpond(form: str) -> Contender:
    name = millpond_keyed_state.NAMES[form]
    module = "benchmarks.millpond_keyed_state"
    return Contender(name, module, ("--form", form), ((),), 20_000_000, 20_000_000)


def _spark(name: str, form: str, files: Sequence[int]) -> Contender:
    variants = tuple(("--files-per-trigger", str(n)) for n in files)
    module = "benchmarks.peers.spark_state"
    return Contender(name, module, ("--form", form), variants, 200_000, 500_000)


def _flink(name: str, mode: str, sparse_rows: int, bundles: Sequence[int]) -> Contender:
    variants = tuple(("--bundle-rows", str(n)) for n in bundles)
    return Contender(name, "benchmarks.peers.flink_state", ("--mode", mode), variants, sparse_rows, 2_000_000)


CONTENDERS = {
    one.name: one
    for one in (
        *(_millpond(form) for form in millpond_keyed_state.NAMES),
        Contender(
            "bytewax",
            "benchmarks.peers.bytewax_state",
            (),
            (("--processes", "1"), ("--processes", "2")),
            2_000_000,
            2_000_000,
        ),
        # Between processes a key that is not cached costs a call each way, about as in Spark.
        _flink("flink", "process", 200_000, (100_000, 10_000)),
        _flink("flink-thread", "thread", 2_000_000, (100_000,)),
        _spark("spark", "record", (1, 2, 5)),
        _spark("spark-once", "once", (1, 2, 5)),
        _spark("spark-pandas", "pandas", (2,)),
    )
}


def input_of(rows: int, keys: int) -> data.Input:
    """Files of a hundred thousand rows, or ten files where that would be fewer."""
    per_file = max(1, min(100_000, rows // 10))
    return data.Input(rows, keys, rows_per_file=per_file, rows_per_group=per_file)


def prefix(wanted: data.Input, rows: int) -> Path:
    """A folder with the first files of the input: as many as hold `rows`."""
    folder = data.ensure(wanted)
    chosen = data.files(folder)[: -(-rows // wanted.rows_per_file)]
    if len(chosen) == len(data.files(folder)):
        return folder
    place = folder.with_name(f"{folder.name}-first-{len(chosen)}")
    if place.exists():
        return place
    making = place.with_name(f".{place.name}.{os.getpid()}")
    making.mkdir()
    try:
        for path in chosen:
            os.link(path, making / path.name)
        making.rename(place)
    except BaseException:
        shutil.rmtree(making)
        raise
    return place


def variants(contender: Contender, files: int, tune: bool) -> tuple[tuple[str, ...], ...]:
    """Those that differ on so many files; without tuning only the first."""
    found = tuple(
        one for one in contender.variants if one[:1] != ("--files-per-trigger",) or int(one[1]) <= files
    )
    found = found or contender.variants[:1]
    return found if tune else found[:1]


def check(contender: Contender, variant: Sequence[str], cores: int) -> None:
    """Raises unless the variant's answer on the small input is DuckDB's."""
    whole = (*contender.arguments, *variant)
    headline.check(headline.Contender(contender.name, contender.module), whole, data.ensure(SMALL), cores)


def timed(contender: Contender, variant: Sequence[str], folder: Path, cores: int) -> Outcome:
    whole = (*contender.arguments, *variant)
    return headline.timed(headline.Contender(contender.name, contender.module), whole, folder, cores)


def run(
    inputs: Sequence[data.Input],
    against: Sequence[str],
    millpond: bool,
    cores: int,
    rounds: int,
    tune: bool,
    console: Console,
) -> None:
    """Verify, time in turns, save and show."""
    contenders = choose(CONTENDERS, against, millpond)
    record = Record(datetime.now().astimezone(), [Section(one, []) for one in inputs])
    plan = {
        (one.name, at): (folder, variants(one, len(data.files(folder)), tune))
        for at, wanted in enumerate(inputs)
        for one in contenders
        for folder in (prefix(wanted, one.rows(wanted)),)
    }
    for contender in contenders:
        every = dict.fromkeys(
            v for (name, _), (_, some) in plan.items() if name == contender.name for v in some
        )
        for variant in every:
            console.print(f"verify {contender.name} {' '.join(variant)}")
            check(contender, variant, cores)
    for at, (wanted, section) in enumerate(zip(inputs, record.sections, strict=True)):
        data.warm(data.ensure(wanted))
        chosen: dict[str, tuple[float, tuple[str, ...]]] = {}
        for turn in range(rounds):
            for contender in contenders:
                folder, some = plan[contender.name, at]
                for variant in some if turn == 0 else (chosen[contender.name][1],):
                    console.print(
                        f"{wanted.keys:,} keys, turn {turn + 1}: {contender.name} {' '.join(variant)}"
                    )
                    result = timed(contender, variant, folder, cores)
                    rate, other = result.rows_per_second, result.other_cpu_seconds
                    cpu = f"{result.cpu_seconds:.1f} CPU s, {other:.1f} by others"
                    console.print(f"  {rate:,.0f} rows/s of {result.rows:,} rows, {cpu}")
                    chosen[contender.name] = max(chosen.get(contender.name, (0.0, ())), (rate, variant))
                    section.outcomes.append(result)
                    record.save()
    record.show(console)
