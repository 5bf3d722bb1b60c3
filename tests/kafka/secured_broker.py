"""A Kafka broker that lets nobody in without TLS and a password."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker import Broker, free_port
from tests.certificates import make_authority, make_certificate

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
    folder.mkdir(parents=True, exist_ok=True)
    authority, other = (make_authority(folder, name) for name in ("authority", "other"))
    key, certificate = make_certificate(folder, authority)
    store = folder / "server.pem"
    store.write_text(key.read_text() + certificate.read_text() + authority.read_text())
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
