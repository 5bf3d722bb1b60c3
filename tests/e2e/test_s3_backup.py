"""Backup and restore over a real S3 protocol: to a bucket, from it, and from one bucket to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

import millpond
from millpond.errors import DataError, InvalidError
from millpond.pond import Pond

from .test_s3_store import KEYS, moto

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def options(endpoint: str, tmp_path: Path) -> dict[str, Any]:
    return {"endpoint": endpoint, "region": "us-east-1", "cache": str(tmp_path / "cache"), **KEYS}


def defined(place: str | Path, **options: Any) -> Pond:
    pond = millpond.open(place, engine="inline", **options)
    pond.sql("CREATE TABLE orders (id bigint PRIMARY KEY, amount bigint)")
    pond.sql("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(amount) AS amount FROM orders")
    return pond


def put(pond: Pond, *ids: int) -> None:
    pond.insert("orders", [{"id": n, "amount": 10 * n} for n in ids])
    pond.flush()


def total(pond: Pond) -> list[tuple[Any, ...]]:
    return list(pond.sql("SELECT n, amount FROM total").fetchall())


def test_a_folder_is_backed_up_to_a_bucket_and_restored(tmp_path: Path, options: dict[str, Any]) -> None:
    target = "s3://pond/backups/folder"
    with defined(tmp_path / "pond") as pond:
        put(pond, 1, 2)
        first = pond.backup(target, verify=True, store_options=options)
        put(pond, 3)
        second = pond.backup(target, verify=True, store_options=options)
    assert first.verified and second.verified and second.copied_files < second.files

    made = millpond.restore(target, tmp_path / "again", store_options=options)
    with millpond.open(tmp_path / "again", engine="inline") as again:
        assert again.epoch == made.epoch == second.epoch
        assert total(again) == [(3, 60)]
        put(again, 4)
        assert total(again) == [(4, 100)]
    millpond.restore(target, tmp_path / "older", epoch=first.epoch, store_options=options)
    with millpond.open(tmp_path / "older", engine="inline") as older:
        assert total(older) == [(2, 30)]


def test_a_pond_in_a_bucket_is_backed_up_and_restored(tmp_path: Path, options: dict[str, Any]) -> None:
    with defined("s3://pond/live", store_options=options) as pond:
        put(pond, 1, 2)
        pond.backup("s3://pond/backups/live", verify=True, store_options=options)
        pond.backup(tmp_path / "local", verify=True)

    millpond.restore("s3://pond/backups/live", "s3://pond/again", store_options=options)
    millpond.restore(tmp_path / "local", "s3://pond/from-local", store_options=options)
    for place in ("s3://pond/again", "s3://pond/from-local"):
        with millpond.open(place, engine="inline", store_options=options) as again:
            assert total(again) == [(2, 30)]
            put(again, 5)
            assert total(again) == [(3, 80)]
    with pytest.raises(InvalidError, match="restore"):
        millpond.open("s3://pond/backups/live", store_options=options).read("total")


def test_verify_reads_the_bucket_and_not_a_cache_of_it(
    tmp_path: Path, options: dict[str, Any], endpoint: str
) -> None:
    target = "s3://pond/backups/damaged"
    with defined(tmp_path / "pond") as pond:
        put(pond, 1, 2)
        pond.backup(target, verify=True, store_options=options)
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=endpoint, **keys)
        found = client.list_objects_v2(Bucket="pond", Prefix="backups/damaged/")["Contents"]
        name = next(f["Key"] for f in found if "/runs/" in f["Key"])
        data = bytearray(client.get_object(Bucket="pond", Key=name)["Body"].read())
        data[len(data) // 2] ^= 1
        client.put_object(Bucket="pond", Key=name, Body=bytes(data))
        with pytest.raises(DataError):
            pond.backup(target, verify=True, store_options=options)
    with pytest.raises(DataError):
        millpond.restore(target, tmp_path / "again", store_options=options)
    with pytest.raises(InvalidError):
        millpond.open(tmp_path / "again").read("total")
