"""`make test` runs every folder of tests."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_folder_of_tests_is_in_a_suite() -> None:
    script = (ROOT / "scripts" / "suites.sh").read_text().split()
    folders = {f"tests/{path.parent.name}" for path in (ROOT / "tests").glob("*/test_*.py")} | {"tests/unit"}
    assert folders - set(script) == set()
