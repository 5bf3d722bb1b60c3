"""A small pond for the command line's tests, and a way to call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner

import millpond
from millpond.cli.app import app
from millpond.pond import Pond
from millpond.sources.memory import MemorySource

SALES = pa.schema([("shop", pa.string()), ("price", pa.int64())])


def sales() -> MemorySource:
    source = MemorySource(SALES)
    source.push([{"shop": "a", "price": 1}, {"shop": "b", "price": 2}])
    return source


def define(path: Path, source: MemorySource, **settings: Any) -> Pond:
    """Sales per shop, on the inline engine."""
    pond = millpond.open(path, engine="inline", durable=False, **settings)
    pond.stream("sales", source).key_by("shop").aggregate(n="count(*)", total="sum(price)").view("by_shop")
    return pond


def make(path: Path) -> str:
    """Epochs: 0 create, 1 two shops, 2 the savepoint `start` is made, 3 another sale."""
    source = sales()
    with define(path, source) as pond:
        pond.drain()
        pond.savepoint("start")
        source.push([{"shop": "a", "price": 10}])
        pond.drain()
    return str(path)


class Answer:
    """What the command line said."""

    def __init__(self, *args: str) -> None:
        done = CliRunner().invoke(app, list(args), catch_exceptions=False, env={"COLUMNS": "160"})
        self.code: int = done.exit_code
        self.out: str = done.stdout
        self.err: str = done.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def ask(*args: str) -> Answer:
    return Answer(*args)


def ask_json(*args: str) -> Any:
    found = ask(*args, "--output", "json")
    assert found.code == 0, found.err
    return found.json
