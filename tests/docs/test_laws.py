"""docs/laws.md: every law that the code cites is there, and the tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "laws.md").read_text()


def test_every_law_names_tests_that_exist() -> None:
    sections = re.split(r"^## (\d)\. ", PAGE, flags=re.MULTILINE)[1:]
    assert [int(n) for n in sections[::2]] == list(range(1, 10))
    for number, text in zip(sections[::2], sections[1::2], strict=True):
        named = re.findall(r"`(tests/[\w/.]+)`", text)
        assert len(named) >= 3, f"law {number} names its tests"
        assert [path for path in named if not has_tests(ROOT / path)] == [], f"law {number}"


def has_tests(path: Path) -> bool:
    return path.is_file() and re.search(r"^def test_\w+\(", path.read_text(), re.MULTILINE) is not None


def test_no_law_is_cited_that_does_not_exist() -> None:
    unknown = []
    for folder in ("src", "tests", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md", ".sql"}:
                for numbers in re.findall(
                    r"\blaws? ((?:\d+(?:, | and |, and )?)+)", path.read_text(), re.IGNORECASE
                ):
                    unknown += [
                        f"{path}: law {n}" for n in re.findall(r"\d+", numbers) if not 1 <= int(n) <= 9
                    ]
    assert unknown == []
