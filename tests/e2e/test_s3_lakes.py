"""Delta and Iceberg tables in a bucket of an S3 server (law 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.sinks.delta import DeltaSink
from millpond.sinks.iceberg import IcebergSink
from millpond.sources.delta import DeltaSource
from millpond.sources.iceberg import IcebergSource
from millpond.sources.memory import MemorySource
from millpond.testing.sinks import Deliverer, Feed, run_check

from .test_s3_store import KEYS, moto

pytestmark = pytest.mark.e2e
deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto(tmp_path_factory.mktemp("server")) as found:
        yield found


class DeltaBucket:
    modes = ("changelog", "upsert")

    def __init__(self, endpoint: str, name: str) -> None:
        self.place, self.number = f"s3://pond/{name}", 0
        self.options = {"endpoint": endpoint, "region": "us-east-1", **{k: str(v) for k, v in KEYS.items()}}

    @property
    def path(self) -> str:
        return f"{self.place}-{self.number}"

    def reset(self) -> None:
        self.number += 1

    def sink(self) -> Any:
        return DeltaSink(self.path, (), tuple(self.options.items()))

    def read(self) -> Sequence[Mapping[str, Any]]:
        options = {**self.options, "allow_http": "true"}
        rows: list[dict[str, Any]] = (
            deltalake.DeltaTable(self.path, storage_options=options).to_pyarrow_table().to_pylist()
        )
        return rows


@pytest.mark.parametrize("check", ["repeats", "zombie", "crashes"])
def test_a_delta_table_conforms(check: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.testing.sinks.CRASHES_MAX", 5)
    run_check(check, DeltaBucket(endpoint, check))


def test_two_commits_of_one_version_have_one_winner(endpoint: str) -> None:
    """The bucket decides it: both coordinators have compared the epoch before either commits."""
    target, feed = DeltaBucket(endpoint, "race"), Feed("append")
    part = feed.following()
    one = Deliverer(target, "append")
    two = one.successor()
    delivery, again = one.delivery(part), two.delivery(part)
    first, second = one.sink.open(delivery.binding), two.sink.open(again.binding)
    assert not first.has(delivery) and not second.has(again)
    first.publish(delivery, [one.sink.prepare(p) for p in delivery.cut()])
    stale = second._target
    looked = stale.has
    stale.has = lambda epoch: setattr(stale, "has", looked)
    second.publish(again, [two.sink.prepare(p) for p in again.cut()])
    assert len(target.read()) == len(feed.rows)


def test_through_delta_and_iceberg_in_a_bucket(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view is written to both lakes, and read from both into another pond; keys are references."""
    monkeypatch.setenv("LAKE_SECRET", str(KEYS["secret_access_key"]))
    delta = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": str(KEYS["access_key_id"])}
    delta["secret_access_key"] = "${env:LAKE_SECRET}"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": "s3://pond/warehouse",
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": str(KEYS["access_key_id"]),
        "s3.secret-access-key": "${env:LAKE_SECRET}",
    }
    rows = [{"who": f"w{n % 7}", "n": n} for n in range(50)]
    with millpond.open(tmp_path / "one", engine="inline", durable=False) as pond:
        source = MemorySource({"who": str, "n": int})  # type: ignore[arg-type]
        orders = pond.stream("orders", source).view("all")
        orders.sink("delta", DeltaSink("s3://pond/both", ("who",), delta), mode="append")
        orders.sink("iceberg", IcebergSink("shop.both", catalog, ("who",)), mode="append")
        for first in range(0, 50, 20):
            source.push(rows[first : first + 20])
            pond.drain()
    with millpond.open(tmp_path / "two", engine="inline", durable=False) as pond:
        pond.stream("d", DeltaSource("s3://pond/both", options=delta)).view("delta")
        pond.stream("i", IcebergSource("shop.both", catalog)).view("iceberg")
        pond.drain()
        for view in ("delta", "iceberg"):
            found = sorted((r["who"], r["n"]) for r in pond.read(view).to_pylist())
            assert found == sorted((r["who"], r["n"]) for r in rows), view
    secret = str(KEYS["secret_access_key"]).encode()
    stored = b"".join(
        p.read_bytes() for f in ("one", "two") for p in (tmp_path / f).rglob("*") if p.is_file()
    )
    assert secret not in stored and b"${env:LAKE_SECRET}" in stored
