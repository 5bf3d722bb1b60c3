"""A Kafka broker of our own: one node, its jars from Maven on first use.

Law: the broker lives as long as the block, and answers before the block begins. Where it cannot come up, the
error says what is missing, and whoever wants to may go on without it.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks import data, maven
from benchmarks.maven import MissingError

VERSION = "4.3.0"
START_S = 120.0


def jars() -> Path:
    """The folder with the broker's classes, 44 MB."""
    return maven.dependencies(
        f"kafka-{VERSION}", f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"
    )


def free_port() -> int:
    return _free_ports()[0]


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def _properties(folder: Path, port: int, voters: int, more: Mapping[str, str]) -> str:
    return "\n".join(
        f"{name}={value}"
        for name, value in {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{voters}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{voters}",
            "log.dirs": str(folder / "log"),
            "auto.create.topics.enable": "false",
            # One node holds every copy there is.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",  # a test waits for it
            "log.retention.ms": "-1",
            **more,
        }.items()
    )


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Broker:
    """A node whose data stays in its folder, so that it can be stopped and started again."""

    def __init__(
        self,
        folder: Path,
        java: tuple[str, ...] = ("-Xmx1g",),
        properties: Callable[[int, int], Mapping[str, str]] = lambda port, voters: {},
        formatting: tuple[str, ...] = (),
    ) -> None:
        """`properties` gives further settings, by the ports of the broker and of its controller."""
        self._folder = folder
        self._command = ["java", *java, "-cp", f"{jars()}/*"]
        self._port, voters = _free_ports()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "server.properties").write_text(
            _properties(folder, self._port, voters, properties(self._port, voters))
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, *formatting, "-c")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def _run(self, *arguments: str) -> None:
        command = [*self._command, *arguments, str(self._folder / "server.properties")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise MissingError(f"{arguments[0]} failed: {(done.stdout + done.stderr)[-600:]}")

    def start(self) -> None:
        log = self._folder / "output"
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        command = [self._command[0], quiet, *self._command[1:], "kafka.Kafka"]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, str(self._folder / "server.properties")], stdout=out, stderr=out
            )
        deadline = time.monotonic() + START_S
        while not _answers(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise MissingError(f"the broker does not start: {log.read_text(errors='replace')[-600:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


@contextmanager
def running(java: tuple[str, ...] = ("-Xmx1g",)) -> Iterator[Broker]:
    """A broker with nothing in it."""
    work = data.scratch() / "work"
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"kafka-{os.getpid()}-", dir=work) as place:
        broker = Broker(Path(place), java)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()
