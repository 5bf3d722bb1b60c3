"""docs/sql.md: its differences are as it says, and what it calls not supported is refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import MillpondError
from millpond.pond import Pond
from millpond.sql.refusal import OTHER_VERBS
from tests.docs import unsupported

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
TEXT = PAGE.read_text()


def table(title: str) -> list[list[str]]:
    part = TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
    return [
        [c.strip() for c in line.strip("| ").split(" | ")]
        for line in part.splitlines()
        if line.startswith("| `")
    ]


@pytest.fixture
def pond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pond]:
    monkeypatch.chdir(tmp_path)
    with millpond.open(tmp_path / "other", engine="inline") as made:
        yield made


def test_the_differences_are_as_told(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (a int)")
    rows = table("Where it differs from PostgreSQL")
    assert len(rows) >= 6
    for query, here, _ in rows:
        wanted = re.findall(r"`([^`]*)`", here)[0]
        (found,) = pond.sql(query.strip("`")).fetchone() or (None,)
        assert found == (float(wanted) if wanted == "inf" else ast.literal_eval(wanted)), query


def test_what_is_not_supported_is_as_the_refusals_say() -> None:
    part = TEXT.split("## What is not supported\n")[1].split("\n## ")[0]
    assert unsupported.section() in part, "it is stale: make docs writes it anew"


def test_every_refusal_of_a_query_has_an_example() -> None:
    said = [error.message for error in unsupported.refusals().values()]
    for pattern, where in unsupported.patterns():
        if pattern not in unsupported.UNREACHED:
            shown = any(re.fullmatch(pattern, message) for message in said)
            assert shown, f"no example shows {pattern!r} ({where}): add one to tests/docs/unsupported.py"


def test_statements_of_other_databases_are_refused_with_what_to_do(pond: Pond) -> None:
    for verb, instead in OTHER_VERBS.items():
        with pytest.raises(MillpondError) as caught:
            pond.sql(f"{verb} x")
        assert caught.value.message == f"{verb} is not supported" and caught.value.hint == instead
