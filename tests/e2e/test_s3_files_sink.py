"""Files of a sink in a bucket of a real S3 server (law 7)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from millpond.sinks.files import FilesSink
from millpond.state.store.store import open_store
from millpond.testing.sinks import run_check
from tests.lakes.kills import kill_and_compare

from .test_s3_store import KEYS, moto

pytestmark = pytest.mark.e2e


class BucketTarget:
    modes = ("changelog",)

    def __init__(self, endpoint: str, name: str) -> None:
        self.path = f"s3://pond/{name}"
        self.options = {"endpoint": endpoint, "region": "us-east-1", **KEYS}

    def sink(self) -> Any:
        return FilesSink(self.path, "json", ("n",), tuple((k, str(v)) for k, v in self.options.items()))

    def read(self) -> Sequence[Mapping[str, Any]]:
        store, found = open_store(self.path, **self.options), []
        for name in store.list(""):
            if name.endswith(".json"):
                text = name.partition("/")[0].removeprefix("n=")
                value = None if text.startswith("__") else int(text)
                found += [json.loads(line) | {"n": value} for line in store.get(name).splitlines()]
        return found


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.mark.parametrize("check", ["repeats", "zombie", "crashes"])
def test_conforms(check: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.testing.sinks.CRASHES_MAX", 8)
    run_check(check, BucketTarget(endpoint, check))


SETUP = """
from millpond.sinks.files import FilesSink
def attach(view, folder):
    view.sink("log", FilesSink({path!r}, "json", (), {options!r}), mode="changelog")
"""


def _kills(endpoint: str, tmp_path: Path, kills: int) -> None:
    target = BucketTarget(endpoint, f"killed-{kills}")
    options = tuple((k, str(v)) for k, v in target.options.items())
    store = open_store(target.path, **target.options)

    def read(folder: Path) -> tuple[list[dict[str, Any]], None]:
        names = [name for name in store.list("") if name.endswith(".json")]
        return [json.loads(line) for name in names for line in store.get(name).splitlines()], None

    setup = SETUP.format(path=target.path, options=options)
    kill_and_compare(tmp_path, setup, read, kills=kills, workers=2, seed=3, away_s=1)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, 50])
def test_kills_with_two_coordinators(kills: int, endpoint: str, tmp_path: Path) -> None:
    _kills(endpoint, tmp_path, kills)
