"""A Kafka broker that lets nobody in without TLS and a password, its certificates made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker import Broker, free_port
from benchmarks.maven import MissingError

USER, PASSWORD = "mill", "kafka-hunter2"
_SCRAM = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
_PLAIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
)
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True)
class SecuredBroker:
    address: str
    authority: Path  # the certificate that clients trust
    other_authority: Path  # one that has signed nothing here

    def client(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """The settings of a client."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
        }


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    if shutil.which("openssl") is None:
        raise MissingError("openssl is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    authority, other = (_authority(folder, name) for name in ("authority", "other"))
    store = _signed(folder, authority)
    port = free_port()

    def properties(plain: int, voters: int) -> Mapping[str, str]:
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{port},"
            f"CONTROLLER://127.0.0.1:{voters}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURED://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.secured.plain.sasl.jaas.config": _PLAIN,
            "listener.name.secured.scram-sha-256.sasl.jaas.config": _LOGIN,
        }

    java = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    broker = Broker(folder / "broker", java, properties, ("--add-scram", _SCRAM))
    broker.start()
    try:
        yield SecuredBroker(f"127.0.0.1:{port}", authority, other)
    finally:
        broker.stop()


def _authority(folder: Path, name: str) -> Path:
    """A certificate that signs others; its key is beside it."""
    made = folder / f"{name}.pem"
    names = ["-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE"]
    _openssl("req", "-x509", *_new(folder / f"{name}.key"), "-days", "2", *names, "-out", str(made))
    return made


def _signed(folder: Path, authority: Path) -> Path:
    """The key and the certificate of 127.0.0.1, in one file."""
    key, asked, made, facts = (folder / f"server.{kind}" for kind in ("key", "csr", "crt", "ext"))
    facts.write_text("subjectAltName=IP:127.0.0.1")
    _openssl("req", *_new(key), "-subj", "/CN=127.0.0.1", "-out", str(asked))
    signer = ["-CA", str(authority), "-CAkey", str(authority.with_suffix(".key")), "-CAcreateserial"]
    request = ["-req", "-in", str(asked), "-days", "2", "-extfile", str(facts)]
    _openssl("x509", *request, *signer, "-out", str(made))
    store = folder / "server.pem"
    store.write_text(key.read_text() + made.read_text() + authority.read_text())
    return store


def _new(key: Path) -> list[str]:
    return ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key)]


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise MissingError(f"openssl failed: {done.stderr[-400:]}")
