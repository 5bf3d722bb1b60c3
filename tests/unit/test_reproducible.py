"""Random tests use fixed seeds, unless fresh ones are asked for: the verdict is the same on every machine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis
from hypothesis import given, settings
from hypothesis import strategies as st

TESTS = Path(__file__).parents[1]

SHOW_EXAMPLES = """
import conftest
from hypothesis import given, settings, strategies as st

@settings(max_examples=5)
@given(st.integers(), st.floats(), st.lists(st.integers()))
def show(n, x, more):
    print("example", n, x, more)

show()
"""


def examples(folder: Path, fresh: bool) -> list[str]:
    """Return the examples that Hypothesis chooses in a new process with this project's conftest."""
    folder.mkdir()
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    environment = {**os.environ, "PYTHONPATH": path, "MILLPOND_FRESH_SEEDS": str(int(fresh))}
    done = subprocess.run(
        [sys.executable, "-c", SHOW_EXAMPLES],
        env=environment, cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not (folder / ".hypothesis" / "examples").exists()
    return [line for line in done.stdout.splitlines() if "example" in line]


def test_two_runs_choose_the_same_examples(tmp_path: Path) -> None:
    one, two = examples(tmp_path / "one", fresh=False), examples(tmp_path / "two", fresh=False)
    assert len(one) >= 5
    assert one == two


def test_fresh_seeds_choose_others(tmp_path: Path) -> None:
    assert examples(tmp_path / "one", fresh=True) != examples(tmp_path / "two", fresh=True)


@settings(max_examples=60)
@given(st.integers())
def test_a_normal_run_tries_a_tenth_of_the_examples(_n: int) -> None:
    fresh = os.environ.get("MILLPOND_FRESH_SEEDS") == "1"
    assert settings.default is not None
    assert settings.default.max_examples == (60 if fresh else 6)


def test_this_run_has_no_database_of_examples() -> None:
    assert hypothesis.settings.default.database is None


def test_no_seed_is_taken_from_the_clock_or_the_system() -> None:
    """`random.Random()` and `default_rng()` without a seed differ in every run."""
    unseeded = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        if re.search(r"(Random|default_rng|RandomState)\(\s*\)", text) is None:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and not node.args and not node.keywords:
                name = ast.unparse(node.func).rpartition(".")[2]
                if name in {"Random", "default_rng", "RandomState"}:
                    unseeded.append(f"{path.relative_to(TESTS)}:{node.lineno}")
    assert unseeded == []
