"""Names of processes: who has ended is known on the same machine, and about others nothing is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millpond.control import process_name
from tests.waiting import until

SOURCE = str(Path(__file__).parents[3] / "src")
NAMED = f"""
import sys; sys.path[:0] = [{SOURCE!r}]
from millpond.control import process_name
print(process_name.own(), flush=True)
input()
"""


@contextmanager
def named() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process and its name."""
    made = subprocess.Popen(
        [sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert made.stdout is not None
    yield made, made.stdout.readline().strip()
    made.kill()
    made.wait()


@pytest.fixture(scope="module")
def other() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with named() as made:
        yield made


def test_who_runs_is_not_gone(other: tuple[subprocess.Popen[str], str]) -> None:
    assert process_name.own() == process_name.own()
    assert other[1] != process_name.own()
    assert not process_name.is_gone(process_name.own())
    assert not process_name.is_gone(other[1])


def test_who_was_killed_is_gone_before_its_parent_asks() -> None:
    with named() as (process, name):
        process.kill()
        until(lambda: process_name.is_gone(name))
        process.wait()
        assert process_name.is_gone(name)


def test_a_number_that_was_given_again(other: tuple[subprocess.Popen[str], str]) -> None:
    number = other[1].rpartition("/")[0]
    assert process_name.is_gone(f"{number}/1")


def test_nothing_is_said_of_other_machines(other: tuple[subprocess.Popen[str], str]) -> None:
    machine, number, began = other[1].rsplit("/", 2)
    assert not process_name.is_gone(f"{machine}0/{number}/{began}")
    assert not process_name.is_gone(None)


def test_without_proc_nobody_has_a_name_and_nobody_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with named() as (process, name):
        process.kill()
        process.wait()
    assert process_name.is_gone(name)
    monkeypatch.setattr(process_name, "_BOOT", process_name._PROC / "nothing")
    assert process_name.own() is None
    assert not process_name.is_gone(name)
