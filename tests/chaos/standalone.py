"""A Spark standalone cluster from the pip wheel, with an S3 server: a master and two workers.

    python -m tests.chaos.standalone

Where the system permits it, the master and each worker have a network namespace, so that a link can be cut; all
are on one bridge with the driver and the S3 server.  Elsewhere they are plain processes of this host, and that is
said.  Every worker has its own work folder and its own disk cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from tests.e2e.test_s3_store import KEYS, MOTO, answers, free_port
from tests.waiting import until

from .faulty_s3 import FaultyS3

ROOT = Path(__file__).parents[2]
BUCKET = "pond"
SPARK = Path(pyspark.__file__).parent
MASTER, WORKERS = (
    2,
    (3, 4),
)  # last numbers of their addresses; 1 is the bridge, with the driver and the S3 server
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def ip(*words: str, check: bool = True) -> bool:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.returncode == 0


class Network:
    """A bridge with one network namespace per host; `reason` says why there is none, if so."""

    def __init__(self) -> None:
        number = os.getpid() % 200 + 20
        self.prefix = f"10.{number}.77"
        self.bridge = f"mp{number}"
        self.hosts: list[int] = []
        self.reason: str | None = None
        try:
            ip("link", "add", self.bridge, "type", "bridge")
            ip("addr", "add", f"{self.prefix}.1/24", "dev", self.bridge)
            ip("link", "set", self.bridge, "up")
            for host in (MASTER, *WORKERS):
                self._add(host)
        except (OSError, FileNotFoundError) as error:
            self.close()
            self.reason = str(error)

    def _add(self, host: int) -> None:
        name = self.name(host)
        ip("netns", "add", name)
        self.hosts.append(host)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", name, "master", self.bridge, "up")
        for words in (
            ("addr", "add", f"{self.prefix}.{host}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", name, *words)

    def name(self, host: int) -> str:
        return f"{self.bridge}h{host}"

    def address(self, host: int) -> str:
        return "127.0.0.1" if self.reason else f"{self.prefix}.{host}"

    def command(self, host: int, *words: str) -> list[str]:
        return [*words] if self.reason else ["ip", "netns", "exec", self.name(host), *words]

    def link(self, host: int, up: bool) -> None:
        if host in self.hosts:  # and the network was not closed meanwhile
            ip("link", "set", self.name(host), "up" if up else "down")

    def close(self) -> None:
        for host in self.hosts:
            ip("netns", "del", self.name(host), check=False)
            ip("link", "del", self.name(host), check=False)
        self.hosts = []
        ip("link", "del", self.bridge, check=False)


class StandaloneCluster:
    def __init__(self, folder: Path, memory_mb: int = 700) -> None:
        self.folder = folder
        self.memory_mb = memory_mb  # of a worker
        self.network = Network()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.keys = {
            "AWS_ACCESS_KEY_ID": KEYS["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": KEYS["secret_access_key"],
            "AWS_REGION": "us-east-1",
        }
        self.master = f"spark://{self.network.address(MASTER)}:{free_port()}"
        self.endpoint = self.server = ""
        self.s3_port = 0
        self.faulty: FaultyS3

    @property
    def driver_host(self) -> str:
        return self.network.address(1)

    def conf(self, host: int = 1) -> dict[str, str]:
        """Settings of the session of a driver on this host: where executors reach it, and small JVMs."""
        return {
            "spark.driver.host": self.network.address(host),
            "spark.driver.bindAddress": self.network.address(host),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.executorEnv.PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "spark.local.dir": str(self.folder / f"driver-{host}"),
        }

    def start(self) -> None:
        self.start_s3()
        host, port = self.master.removeprefix("spark://").split(":")
        arguments = ("--host", host, "--port", port, "--webui-port", "0")
        self._spark("master", MASTER, "org.apache.spark.deploy.master.Master", *arguments)
        for worker in WORKERS:
            self.start_worker(worker)
        for worker in WORKERS:
            until(lambda: "Successfully registered" in self.log(f"worker-{worker}"), 120)  # noqa: B023

    def start_worker(self, host: int) -> None:
        work = self.folder / f"host-{host}"
        for name in ("work", "cache", "local"):
            (work / name).mkdir(parents=True, exist_ok=True)
        arguments = ("--host", self.network.address(host), "--webui-port", "0", "--cores", "1")
        more = ("--memory", f"{self.memory_mb}m", "--work-dir", str(work / "work"), self.master)
        worker = "org.apache.spark.deploy.worker.Worker"
        self._spark(f"worker-{host}", host, worker, *arguments, *more)

    def start_s3(self) -> None:
        """Start the S3 server on its port, with the buckets that it had before."""
        port = self.s3_port = self.s3_port or free_port()
        host = self.driver_host
        (self.folder / "buckets" / BUCKET).mkdir(parents=True, exist_ok=True)
        found = shutil.which("versitygw") or shutil.which("versitygw", path=str(Path.home() / "go" / "bin"))
        if found:
            keys = ("--access", KEYS["access_key_id"], "--secret", KEYS["secret_access_key"])
            command = [found, "--port", f"{host}:{port}", *keys, "posix", str(self.folder / "buckets")]
        else:
            command = [sys.executable, "-c", MOTO.replace('"127.0.0.1"', repr(host)), str(port)]
        self.server = "versitygw" if found else "moto"
        self._start("s3", command, {})
        until(lambda: answers(f"http://{host}:{port}"), 120)
        if not self.endpoint:
            self.faulty = FaultyS3(host, proxy_port := free_port(), port)
            self.endpoint = f"http://{host}:{proxy_port}"
        if not found:
            import boto3

            names = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region_name": "us-east-1"}
            boto3.client("s3", endpoint_url=self.endpoint, **names).create_bucket(Bucket=BUCKET)

    def _spark(self, name: str, host: int, *words: str) -> None:
        environment = {
            "SPARK_LOCAL_IP": self.network.address(host),
            "SPARK_LOG_DIR": str(self.folder / "logs"),
            "SPARK_LOCAL_DIRS": str(self.folder / f"host-{host}" / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dspark.worker.timeout=15",
            "MILLPOND_CACHE_DIR": str(self.folder / f"host-{host}" / "cache"),
            "PYSPARK_PYTHON": sys.executable,
        }
        command = self.network.command(host, str(SPARK / "bin" / "spark-class"), *words)
        self._start(name, command, environment)

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as out:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **self.keys, **environment},
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """kill -9 of a server and of everything that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes.pop(name).wait()

    def executors(self, host: int) -> list[int]:
        """The process numbers of the executors on a host."""
        group = self.processes[f"worker-{host}"].pid
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    line = (entry / "cmdline").read_text()
                    if "CoarseGrainedExecutorBackend" in line and os.getpgid(int(entry.name)) == group:
                        found.append(int(entry.name))
        return found

    def python_workers(self, host: int) -> list[int]:
        """The Python processes below the executors of a host."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                    parents[int(entry.name)] = int(status[1])
        executors = set(self.executors(host))
        found = []
        for pid in parents:
            at = parents[pid]
            while at in parents and at not in executors:
                at = parents[at]
            if at in executors:
                found.append(pid)
        return found

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        if self.endpoint:
            self.faulty.close()
        self.network.close()


@contextmanager
def standalone_cluster(folder: Path, memory_mb: int = 700) -> Iterator[StandaloneCluster]:
    made = StandaloneCluster(folder, memory_mb)
    try:
        made.start()
        yield made
    finally:
        made.close()


def main() -> int:
    """Run the pipeline of the chaos test on a cluster, kill things, compare with batch, tear down."""
    import tempfile

    from tests.chaos.cluster_run import run

    with tempfile.TemporaryDirectory(prefix="millpond-cluster-") as folder:
        began = time.monotonic()
        with standalone_cluster(Path(folder)) as cluster:
            print(f"cluster {cluster.master} after {time.monotonic() - began:.1f} s", flush=True)
            print(f"S3: {cluster.server} at {cluster.endpoint}")
            print(
                f"plain processes, because namespaces are not permitted: {cluster.network.reason}"
                if cluster.network.reason
                else "master and workers have network namespaces",
                flush=True,
            )
            print(run(cluster, rounds=int(os.environ.get("MILLPOND_CHAOS_ROUNDS", "1")), say=print))
    return 0


if __name__ == "__main__":
    sys.exit(main())
