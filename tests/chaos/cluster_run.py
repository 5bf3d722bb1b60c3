"""Runs the chaos pipeline on a standalone cluster with its pond on S3, and breaks things while it runs."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import millpond
from tests.chaos.pipeline import AHEAD, END, ROWS, check
from tests.chaos.standalone import BUCKET, ROOT, WORKERS, StandaloneCluster
from tests.chaos.targets import VARIABLE, Targets, check_targets
from tests.sql.fuzz import postgres
from tests.waiting import until

ITEMS_AFTER = 2 * AHEAD  # those that come after the last fault
FAULTS = (
    *("executor", "worker", "straggler", "s3 outage", "s3 killed", "s3 503", "s3 stall", "s3 lost"),
    *("cut link", "cache", "driver"),
)
ENDS_BY_ITSELF = (
    "s3 outage",
    "s3 killed",
    "s3 503",
    "s3 stall",
    "s3 lost",
)  # recovery is counted from its end
FAULTY_S = 12.0  # how long answers are refused, stalled or lost
STALL_S = 60.0  # how long a straggler and a cut link last; a commit must not wait for it


class Driver:
    """The pipeline in a process of its own; a standby is on another host, with process numbers of its own."""

    def __init__(
        self,
        cluster: StandaloneCluster,
        items: int,
        conf: Mapping[str, str] | None = None,
        standby_on: int | None = None,
        targets: Targets | None = None,
        end: Path | None = None,
    ) -> None:
        self.cluster = cluster
        name = "driver" if standby_on is None else f"driver-{standby_on}"
        self.path = cluster.folder / f"{name}.log"
        self.start = self.path.stat().st_size if self.path.exists() else 0
        environment = {
            **os.environ,
            **cluster.keys,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "MILLPOND_CHAOS_CONF": json.dumps({**cluster.conf(standby_on or 1), **(conf or {})}),
            "MILLPOND_CHAOS_STORE": json.dumps(options_of(cluster)),
            "MILLPOND_CACHE_DIR": str(cluster.folder / f"{name}-cache"),
        }
        if targets is not None:
            environment[VARIABLE] = targets.to_json()
        if end is not None:
            environment[END] = str(end)
        pipeline = (sys.executable, "-m", "tests.chaos.pipeline", f"s3://{BUCKET}/chaos", str(items))
        command = [*pipeline, cluster.master]
        if standby_on is not None:
            environment["MILLPOND_CHAOS_STANDBY"] = "1"
            apart = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
            command = cluster.network.command(standby_on, *apart, *command)
        with self.path.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )

    def text(self) -> str:
        return self.path.read_bytes()[self.start :].decode(errors="replace")

    def position(self) -> int:
        found = re.findall(r"position (\d+)", self.text())
        return int(found[-1]) if found else 0

    @property
    def is_done(self) -> bool:
        return "\ndone" in self.text()

    def wait_until(self, done: Callable[[], bool], seconds: float) -> None:
        def ended() -> bool:
            assert done() or self.process.poll() is None, f"the pipeline ended:\n{self.text()[-4000:]}"
            return done()

        try:
            until(ended, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; the log ends:\n{self.text()[-4000:]}") from None

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def options_of(cluster: StandaloneCluster) -> dict[str, Any]:
    return {"endpoint": cluster.endpoint, "region": "us-east-1"}


def run(
    cluster: StandaloneCluster, rounds: int, say: Callable[[str], None], faults: tuple[str, ...] = FAULTS
) -> dict[str, list[float]]:
    """Break each thing once a round, and compare views and sinks with batch at the end.

    Returns how long each took until the next commit, in seconds.
    """
    possible = tuple(fault for fault in faults if not _impossible(cluster, fault, say))
    os.environ.update(cluster.keys)
    with _postgres(say) as address:
        targets = Targets(f"s3://{BUCKET}/targets", options_of(cluster), address)
        recovered, items = _break_things(cluster, possible * rounds, targets, say)
        with millpond.open(f"s3://{BUCKET}/chaos", store_options=options_of(cluster)) as reader:
            check(reader, items)
            say(f"all views equal the batch queries over {items * ROWS:,} rows")
            read = check_targets(reader, targets)
            say(f"all sinks equal the views; rows read from them: {read}")
    say(f"requests that met a fault: {dict(cluster.faulty.met)}")
    return recovered


def _impossible(cluster: StandaloneCluster, fault: str, say: Callable[[str], None]) -> bool:
    why = {}
    if cluster.network.reason:
        why["cut link"] = cluster.network.reason
    if cluster.server == "moto":
        why["s3 killed"] = "moto keeps everything in memory"
    if fault in why:
        say(f"{fault}: left out, {why[fault]}")
    return fault in why


@contextmanager
def _postgres(say: Callable[[str], None]) -> Iterator[str | None]:
    """The connection string of a server of PostgreSQL; None where there is none, and that is said."""
    try:
        server = postgres.Server()
    except postgres.Missing as missing:
        say(f"no sink writes to PostgreSQL: {missing}")
        yield None
        return
    try:
        yield f"host={server.folder} user=fuzz dbname=postgres"
    finally:
        server.close()


def _break_things(
    cluster: StandaloneCluster, faults: tuple[str, ...], targets: Targets, say: Callable[[str], None]
) -> tuple[dict[str, list[float]], int]:
    """Run the pipeline with these faults on its way; returns also how many items it has read in the end."""
    rng = random.Random(0)
    end = cluster.folder / "end"
    recovered: dict[str, list[float]] = {}
    driver = Driver(cluster, 0, targets=targets, end=end)
    driver.wait_until(lambda: driver.position() > 0, 240)
    for fault in faults:
        at = driver.position()
        driver.wait_until(lambda: driver.position() > at, 240)  # noqa: B023
        before = driver.position()
        time.sleep(rng.random())
        began = time.monotonic()
        if fault == "driver":
            driver.kill()
            driver = Driver(cluster, 0, targets=targets, end=end)
        else:
            inject(cluster, fault, rng)
        ended = time.monotonic()
        driver.wait_until(lambda: driver.position() > before, 300)  # noqa: B023
        took = time.monotonic() - (ended if fault in ENDS_BY_ITSELF else began)
        recovered.setdefault(fault, []).append(round(took, 1))
        load = os.getloadavg()[0]
        say(f"{fault}: the next commit {took:.1f} s after it, position {driver.position()}, load {load:.0f}")
    items = driver.position() + ITEMS_AFTER
    cluster.folder.joinpath("end.new").write_text(str(items))
    cluster.folder.joinpath("end.new").rename(end)
    driver.wait_until(lambda: driver.is_done, 900)
    driver.process.wait(60)
    assert driver.process.returncode == 0, driver.text()[-3000:]
    return recovered, items


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def inject(cluster: StandaloneCluster, fault: str, rng: random.Random) -> None:
    """Break one thing, and mend it where nothing else would."""
    host = rng.choice(WORKERS)
    match fault:
        case "executor":
            for pid in cluster.executors(host):
                os.kill(pid, signal.SIGKILL)
        case "worker":
            cluster.kill(f"worker-{host}")
            cluster.start_worker(host)
        case "s3 outage":  # stopped for half a minute: connections are accepted, and nothing is answered
            group = cluster.processes["s3"].pid
            os.killpg(group, signal.SIGSTOP)
            time.sleep(30)
            os.killpg(group, signal.SIGCONT)
        case "s3 killed":
            cluster.kill("s3")
            time.sleep(30)
            cluster.start_s3()
        case "s3 503" | "s3 stall" | "s3 lost":  # four of ten requests, for a while
            cluster.faulty.fault(fault.removeprefix("s3 "), FAULTY_S)
            time.sleep(FAULTY_S)
        case "cut link":  # mended after a minute, while the pipeline goes on without that host
            cluster.network.link(host, up=False)
            threading.Timer(STALL_S, cluster.network.link, (host, True)).start()
        case "straggler":  # speculation runs its tasks elsewhere
            stalled = cluster.python_workers(host)
            signal_all(stalled, signal.SIGSTOP)
            threading.Timer(STALL_S, signal_all, (stalled, signal.SIGCONT)).start()
        case "cache":
            # Processes write into them meanwhile, so that a folder may not be empty when it is removed.
            for folder in [*cluster.folder.glob("*cache"), cluster.folder / f"host-{host}" / "cache"]:
                subprocess.run(["rm", "-rf", str(folder)], check=False, stderr=subprocess.DEVNULL)
