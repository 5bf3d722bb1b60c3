"""User code that ends or crashes its worker: the error names the step and how the worker ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import ValueState
from millpond.errors import InvalidError, MillpondError, UnavailableError
from millpond.sources.memory import MemorySource
from tests.sampling import first

SCHEMA = pa.schema([("k", pa.int64())])


def dies(how: str, tries: str) -> Any:
    """A function that does this on one row; each try leaves a line."""

    def function(row: Any) -> Any:
        if row.k == 13:
            with open(tries, "a") as out:
                out.write(".")
            if how == "_exit":
                os._exit(7)
            elif how == "segfault":
                ctypes.string_at(0)
            elif how == "abort":
                os.abort()
            elif how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif how == "exit":
                sys.exit(7)
            elif how == "interrupt":
                raise KeyboardInterrupt
        return {"k": row.k}

    return function


def run(session: Any, path: Path, how: str, kind: str = "map") -> None:
    source = MemorySource(SCHEMA)
    with millpond.open(path / "pond", spark=session, durable=False, parallelism=2) as pond:
        stream = pond.stream("in", source)
        function = dies(how, str(path / "tries"))
        if kind == "map":
            made = stream.map(function, SCHEMA, id="deadly")
        else:
            made = stream.key_by("k").process(
                lambda row, n=ValueState(int, default=0): function(row), SCHEMA, id="deadly"
            )
        made.view("out")
        made.key_by("k").aggregate(n="count(*)", id="after").view("counts")
        source.push([{"k": k} for k in range(20)])
        pond.drain()
        assert sorted(pond.read("out")["k"].to_pylist()) == [k for k in range(20) if k != 13]
        (error,) = pond.errors().to_pylist()
        assert error["step"] == "deadly" and error["reason"].startswith(("SystemExit", "KeyboardInterrupt"))


@pytest.mark.parametrize("kind", ["map", "process"])
@pytest.mark.parametrize("how", ["exit", "interrupt"])
def test_what_survives_is_an_error_row(session: Any, tmp_path: Path, how: str, kind: str) -> None:
    run(session, tmp_path, how, kind)


@pytest.mark.parametrize("kind", first(1, ["map", "process"]))
@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ("_exit", InvalidError, "os._exit(7)"),
        ("segfault", InvalidError, "SIGSEGV"),
        ("abort", InvalidError, "SIGABRT"),
        ("killed", UnavailableError, "SIGKILL"),
    ],
)
def test_the_error_names_the_step_and_the_end(
    session: Any, tmp_path: Path, how: str, error: type[MillpondError], told: str, kind: str
) -> None:
    with pytest.raises(error) as caught:
        run(session, tmp_path, how, kind)
    assert caught.value.step == "deadly"
    assert "'deadly'" in caught.value.message and told in (caught.value.detail or ""), str(caught.value)
    assert 1 <= len((tmp_path / "tries").read_text()) <= 5, "retries are bounded"


def test_the_session_goes_on_after_a_death(session: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidError):
        run(session, tmp_path, "_exit")
    (tmp_path / "again").mkdir()
    run(session, tmp_path / "again", "exit")


def _in_cluster(session: Any, path: str, how: str) -> tuple[str, str | None, str]:
    import pathlib

    try:
        run(session, pathlib.Path(path), how)
    except MillpondError as error:
        return type(error).__name__, error.step, str(error)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("how", "kind"),
    [("killed", "UnavailableError"), pytest.param("_exit", "InvalidError", marks=pytest.mark.slow)],
)
def test_executors_tell_it_too(cluster: Any, tmp_path: Path, how: str, kind: str) -> None:
    found, step, text = cluster(_in_cluster, str(tmp_path), how)
    assert (found, step) == (kind, "deadly"), text
