"""How the stores of a backup and of the restored pond are opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from millpond.pond import location
from millpond.settings import Settings
from millpond.state.store.location import options_for

S3, OTHER = "s3://bucket/backup", "s3://other/pond"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    monkeypatch.setattr(location, "open_store", lambda uri, **options: found.append((uri, options)))
    return found


def test_one_set_of_options_is_for_both_buckets(opened: list[tuple[str, Mapping[str, Any]]]) -> None:
    location.restore_stores(S3, OTHER, Settings(), {"region": "eu"})
    assert opened == [(S3, {"region": "eu"}), (OTHER, {"region": "eu"})]


def test_the_backup_may_have_options_of_its_own(opened: list[tuple[str, Mapping[str, Any]]]) -> None:
    location.restore_stores(S3, OTHER, Settings(), {"region": "eu"}, {"region": "us"})
    assert opened == [(S3, {"region": "us"}), (OTHER, {"region": "eu"})]


def test_options_of_a_backup_in_a_bucket_do_not_reach_a_folder(
    opened: list[tuple[str, Mapping[str, Any]]],
) -> None:
    location.restore_stores(S3, "/pond", Settings(), {"region": "eu"})
    location.restore_stores(S3, "/pond", Settings(), {}, {"region": "us"})
    assert [options for _, options in opened] == [
        {"region": "eu"},
        {"durable": True},
        {"region": "us"},
        {"durable": True},
    ]


def test_a_pond_of_another_host_is_cached_in_a_folder_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork names the address of its parent as the host that forked it knew it."""
    monkeypatch.setenv("MILLPOND_CACHE_DIR", str(tmp_path))
    parent = "s3://b/parent?cache=%2Fhome%2Fann%2Fa1b2&region=eu"
    found = options_for(parent, "s3://b/child", {"region": "us", "secret_access_key": "x", "cache": "/c"})
    assert found == {"secret_access_key": "x", "cache": str(tmp_path / "a1b2")}
