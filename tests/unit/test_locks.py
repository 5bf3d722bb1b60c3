"""The pins for pip: `make demo` installs what running needs, `make test` that and what tests need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9_.-]+)==", (ROOT / name).read_text(), re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^a-z0-9_.-]", requirement.lower())[0] for requirement in requirements}


def test_running_needs_no_package_of_the_tests() -> None:
    extras = [names(requirements) for requirements in PROJECT["optional-dependencies"].values()]
    run, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert names(PROJECT["dependencies"]) <= run
    assert not set().union(*extras) & run
    assert run | set().union(*extras) <= dev
