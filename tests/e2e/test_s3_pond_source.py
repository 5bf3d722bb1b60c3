"""A view of a pond on S3 as a source of another pond, with keys that are references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import UnavailableError
from millpond.sources import upstream_pond
from millpond.sources.pond_view import PondSource
from millpond.state.manifest.pins import pins

from .test_s3_store import KEYS, moto

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto(tmp_path_factory.mktemp("server")) as found:
        yield found


def test_a_view_of_a_pond_on_s3(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"endpoint": endpoint, "region": "us-east-1", "cache": str(tmp_path / "cache")}
    for name, value in KEYS.items():
        monkeypatch.setenv(f"UP_{name.upper()}", str(value))
    up = millpond.open(
        "s3://pond/up", engine="inline", store_options={**place, **KEYS}, retain_epochs=2, collect_every=1
    )
    up.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, n BIGINT)")
    up.sql("INSERT INTO orders VALUES (1, 10), (2, 20)")
    up.drain()
    keys = {name: f"${{env:UP_{name.upper()}}}" for name in KEYS}
    source = PondSource("s3://pond/up", "orders", options={**place, **keys})  # type: ignore[arg-type]
    assert all(str(value) not in repr(source) for value in KEYS.values())
    down = millpond.open(tmp_path / "down", engine="inline", durable=False)
    down.stream("up", source).view("copy")
    down.drain()
    for number in range(6):
        up.sql(
            f"INSERT INTO orders VALUES ({number}, {number}), (9, {number}); DELETE FROM orders WHERE id = 2"
        )
        up.drain()
        if number % 3 == 2:
            down.drain()
            assert sorted(map(str, down.read("copy").to_pylist())) == sorted(
                map(str, up.read("orders").to_pylist())
            )
    mine = [pin for pin in pins(up.store) if pin.why.startswith("source ")]
    assert len(mine) == 1
    up.close()
    monkeypatch.setenv(f"UP_{next(iter(KEYS)).upper()}", "another")
    gone = PondSource(
        "s3://nowhere/up",
        "orders",
        {"id": int},
        False,
        options={**place, **KEYS},  # type: ignore[arg-type]
    )
    upstream_pond._upstream.cache_clear()
    with pytest.raises(UnavailableError):
        gone.poll(None, None, 10)
    down.close()
