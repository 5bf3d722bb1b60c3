"""Recovery: from `kill -9` to the first new result, and the pause of a rescale, with state of many keys.

Law: every system holds the same keys, gets the same changes at the same pace, and is killed with all it
started while they come; it is started again at once. Start-up of interpreter, JVM and session is told apart
from what the state costs. Nobody waits for a failure to be noticed: that is a matter of who watches.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
from rich import box
from rich.console import Console
from rich.table import Table

import millpond
from benchmarks import called
from benchmarks.contenders import choose
from benchmarks.peers.command import work_folder
from benchmarks.recovery import outcome, staged
from benchmarks.recovery.flink_follower import FlinkFollower, FlinkRocksFollower
from benchmarks.recovery.follower import Follower, Seen
from benchmarks.recovery.millpond_follower import VIEW, MillpondFollower
from benchmarks.recovery.outcome import Recovery, Rescale, Return
from benchmarks.recovery.spark_follower import SparkFollower
from benchmarks.recovery.staged import Staged, Trickle

FOLLOWERS: dict[str, type[Follower]] = {
    one.name: one for one in (MillpondFollower, FlinkFollower, FlinkRocksFollower, SparkFollower)
}
LOAD_S = 1800.0
RETURN_S = 600.0
INTERVAL_S = 0.2  # between two files of changes
STEADY_S = 12.0  # of changes before a kill: more than two checkpoints of Flink
CANNOT = {
    "spark": "the number of shuffle partitions is part of the checkpoint: another one means to begin anew",
}


def _again(one: Follower, trickle: Trickle, parallelism: int) -> Return:
    """One kill and one return."""
    before = time.time()
    one.wait(lambda seen: bool(seen.commits) and time.time() > before + STEADY_S, RETURN_S, "a steady run")
    newest, killed = trickle.newest, one.kill()
    one.start(parallelism)

    def new(seen: Seen) -> bool:
        return seen.ready is not None and any(commit.newest > newest for commit in seen.commits)

    seen = one.wait(new, RETURN_S, "a new result")
    rows = one.rows() if isinstance(one, FlinkFollower) else None
    return outcome.returned(seen, killed, newest, parallelism, rows)


def _rescaled(one: Follower, before: int, after: int) -> Rescale:
    had = len(one.seen().commits)
    one.say(f"rescale {after}")

    def steady(seen: Seen) -> bool:
        return sum(commit.parallelism == after for commit in seen.commits[had:]) > 10

    seen = one.wait(steady, RETURN_S, f"a parallelism of {after}")
    return outcome.paused(seen.commits[had - 1 :], before, after)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _state_bytes(one: Follower) -> int:
    if isinstance(one, MillpondFollower):
        with millpond.open(one.work / "pond", engine="inline") as pond:
            return sum(state.bytes for state in pond.states())
    if isinstance(one, FlinkFollower):
        last = one.last_checkpoint()
        shared = 0 if last is None else _size(last.parent / "shared")
        return 0 if last is None else _size(last) + shared
    return _size(one.work / "checkpoint" / "state")


def _check(one: Follower, folder: Path) -> bool:
    """After all kills, every row of the input counts once; only a view can be asked."""
    if not isinstance(one, MillpondFollower):
        return False
    with millpond.open(one.work / "pond", engine="inline") as pond:
        rows = pond.read(VIEW)
        files = int(pond.head().positions["bids"]["files"])
    paths = [str(folder / staged.file_name(number)) for number in range(files)]
    wanted = duckdb.execute("SELECT count(*), sum(price) FROM read_parquet(?)", [paths]).fetchall()
    view = duckdb.from_arrow(rows)
    found = view.aggregate("sum(n), sum(total)").fetchall()
    if wanted != found:
        raise RuntimeError(f"after the kills the view holds {found}, the input {wanted}")
    return True


def measured(kind: type[Follower], wanted: Staged, cores: int, rounds: int, console: Console) -> Recovery:
    with work_folder(f"recovery-{kind.name}") as work:
        folder = work / "bids"
        folder.mkdir()
        loaded = staged.ensure(wanted)
        for path in sorted(loaded.iterdir()):
            os.link(path, folder / path.name)
        one = kind(work, folder, cores)
        began = time.time()
        one.start(cores)
        try:
            seen = one.wait(
                lambda seen: any(commit.newest >= wanted.load - 1 for commit in seen.commits),
                LOAD_S,
                "the last key",
            )
            load_s = next(c.at for c in seen.commits if c.newest >= wanted.load - 1) - began
            console.print(f"  loaded in {load_s:.0f} s")
            with Trickle(wanted, folder, INTERVAL_S) as trickle:
                returns = []
                for _ in range(rounds):
                    returns.append(_again(one, trickle, cores))
                    console.print(
                        f"  back after {returns[-1].total_s:.1f} s, start-up {returns[-1].startup_s:.1f} s"
                    )
                rescales: tuple[Rescale, ...] = ()
                restarted: tuple[Return, ...] = ()
                if one.rescales:
                    steps = ((cores, 7), (7, 1), (1, cores))
                    rescales = tuple(_rescaled(one, before, after) for before, after in steps)
                elif one.name not in CANNOT:
                    restarted = (_again(one, trickle, 1), _again(one, trickle, cores))
            size = _state_bytes(one)
        finally:
            one.kill()
        checked = _check(one, folder)
        shutil.rmtree(folder)
    return Recovery(
        name=one.name,
        system=one.system,
        keys=wanted.keys,
        cores=cores,
        committed=one.committed,
        load_s=load_s,
        state_bytes=size,
        returns=tuple(returns),
        rescales=rescales,
        restarted=restarted,
        cannot=CANNOT.get(one.name),
        checked=checked,
    )


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def table(keys: int, found: Sequence[Recovery]) -> Table:
    made = Table(
        title=f"recovery with {keys:,} keys",
        box=box.SIMPLE,
        caption="median of the kills; restore: from a session that stands to the first new result",
    )
    made.add_column("system", no_wrap=True)
    for column in ("kill to result s", "start-up s", "restore s", "not yet durable s", "state MiB"):
        made.add_column(column, justify="right", no_wrap=True)
    made.add_column("rescale")
    for one in found:
        if one.rescales:
            how = "; ".join(
                f"{r.before} to {r.after}: {r.pause_ms:.0f} ms, then {r.steady_ms:.0f} a commit"
                for r in one.rescales
            )
        elif one.restarted:
            how = "; ".join(
                f"restart with {r.parallelism}: {r.restore_s:.1f} s and start-up" for r in one.restarted
            )
        else:
            how = f"not possible: {one.cannot}"
        made.add_row(
            one.name,
            _s(one.median("total_s")),
            _s(one.median("startup_s")),
            _s(one.median("restore_s")),
            _s(one.median("emitted_s")),
            f"{one.state_bytes / 2**20:,.0f}",
            how,
        )
    return made


def run(
    sizes: Sequence[int],
    against: Sequence[str],
    with_millpond: bool,
    cores: int,
    rounds: int,
    console: Console,
) -> None:
    kinds = choose(FOLLOWERS, against, with_millpond)
    record = called.Record("recovery", {"keys": list(sizes), "changes": 10_000, "interval_s": INTERVAL_S})
    found: list[Recovery] = []
    for keys in sizes:
        wanted = Staged(keys)
        staged.ensure(wanted)
        for kind in kinds:
            console.print(f"{keys:,} keys: {kind.name}")
            try:
                one = measured(kind, wanted, cores, rounds, console)
            except RuntimeError as error:  # told, and the others go on
                console.print(f"  {error}", markup=False, highlight=False)
                record.failed.append({"system": kind.name, "keys": keys, "why": str(error)})
            else:
                found.append(one)
                record.outcomes.append(one.as_json())
            record.save()
    for keys in sizes:
        console.print(table(keys, [one for one in found if one.keys == keys]))
    record.told(console)
