"""Random tests use fixed seeds, unless fresh ones are asked for: the verdict is the same on every machine."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import hypothesis

TESTS = Path(__file__).parents[1]

RANDOM_TEST = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=5)
@given(st.integers(), st.floats(), st.text())
def test_shown(n, x, s):
    print("example", n, x, repr(s))
"""


def examples(folder: Path, fresh: bool) -> list[str]:
    """The examples that Hypothesis chooses in a new process, under this project's conftest."""
    folder.mkdir()
    (folder / "test_shown.py").write_text(RANDOM_TEST)
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent), "MILLPOND_FRESH_SEEDS": str(int(fresh))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(folder)],
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


def test_this_run_has_no_database_of_examples() -> None:
    assert hypothesis.settings.default.database is None


def test_no_seed_is_taken_from_the_clock_or_the_system() -> None:
    """`random.Random()` and `default_rng()` without a seed differ in every run."""
    unseeded = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and not node.args and not node.keywords:
                name = ast.unparse(node.func).rpartition(".")[2]
                if name in {"Random", "default_rng", "RandomState"}:
                    unseeded.append(f"{path.relative_to(TESTS)}:{node.lineno}")
    assert unseeded == []
