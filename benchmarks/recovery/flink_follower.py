"""Flink SQL as a follower: the same by key, checkpoints every five seconds, the last one to go on from.

A sample of the results is printed with the moment each went into the sink; what a checkpoint completed after
is committed. Ready is when the job has been planned and is given to the cluster, before any task runs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.latency import on_flink as latency
from benchmarks.nexmark import on_flink
from benchmarks.peers import flink
from benchmarks.recovery.follower import Commit, Follower, Seen

INTERVAL = "5s"
_JOB = Path(latency.__file__).with_name("flink_job.py")
_READY = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) .*switched from state CREATED to RUNNING")
_LINE = re.compile(r"\+[IU]\[(\[.*\])\]$")
QUERY = (
    f"INSERT INTO said SELECT JSON_ARRAY('out', {latency.SEEN}, CAST(newest AS STRING)) FROM ("
    "SELECT auction, COUNT(*) AS n, SUM(price) AS total, MAX(number) AS newest FROM bids GROUP BY auction"
    ") AS made WHERE MOD(total, 101) = 0"
)


class FlinkFollower(Follower):
    name = "flink"
    system = f"Flink SQL {flink.VERSION}, heap state"
    committed = "a checkpoint has completed since the row went into the sink"
    backend = "heap"

    def settings(self, parallelism: int) -> dict[str, str]:
        found = latency.settings(self.cores, self.work, INTERVAL, self.backend)
        last = self.last_checkpoint()
        return {
            **found,
            "parallelism.default": str(parallelism),
            "taskmanager.numberOfTaskSlots": str(max(self.cores, parallelism)),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            **({} if last is None else {"execution.state-recovery.path": last.as_uri()}),
        }

    def last_checkpoint(self) -> Path | None:
        """The newest that is complete; a folder for each is under that of its job."""
        found = list((self.work / "checkpoints").glob("*/chk-*/_metadata"))
        return max(found, key=lambda path: path.stat().st_mtime).parent if found else None

    def command(self, parallelism: int) -> tuple[Sequence[str], Mapping[str, str]]:
        task = self.place / "task.json"
        content = {
            "settings": self.settings(parallelism),
            "input": str(self.folder.parent),
            "tables": {self.folder.name: "auction BIGINT, price BIGINT, number BIGINT"},
            "monitor": "20 ms",
            "inserts": [QUERY],
        }
        task.write_text(json.dumps(content))
        environment = {
            "TZ": "UTC",  # log times are local times
            "JVM_ARGS": flink.JVM.replace("-Xmx4g", "-Xmx6g"),
            "FLINK_HOME": str(on_flink.home()),
            "FLINK_LIB_DIR": str(on_flink.library()),
            "FLINK_LOG_DIR": str(self.place),
            "FLINK_IDENT_STRING": "bench",
            "HADOOP_CLASSPATH": os.pathsep.join(str(jar) for jar in flink.jars()),
        }
        return [str(flink.python()), str(_JOB), str(task)], environment

    def ready(self) -> float | None:
        for path in self.place.glob("*.log"):
            for line in path.read_text(errors="replace").splitlines():
                match = _READY.match(line)
                if match:
                    at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
                    return at.timestamp()
        return None

    def rows(self) -> list[Commit]:
        """What went into the sink, row by row."""
        found = []
        with (self.place / "output").open(errors="replace") as lines:
            for line in lines:
                match = _LINE.search(line.rstrip("\n"))
                if match:
                    _, seen, newest = json.loads(match[1])
                    found.append(Commit(latency._moment(seen), int(newest)))
        return found

    def seen(self) -> Seen:
        """For each checkpoint the newest file of which a row went into the sink before."""
        rows = sorted(self.rows(), key=lambda one: one.at)
        commits, newest, at = [], -1, 0
        for done in latency.completed(self.place):
            while at < len(rows) and rows[at].at <= done:
                newest, at = max(newest, rows[at].newest), at + 1
            commits.append(Commit(done, newest))
        return Seen(self.ready(), tuple(commits))


class FlinkRocksFollower(FlinkFollower):
    name = "flink-rocksdb"
    system = f"Flink SQL {flink.VERSION}, rocksdb state"
    backend = "rocksdb"
