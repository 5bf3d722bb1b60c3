"""ARCHITECTURE.md and GLOSSARY.md: what they name exists, and what they say about imports holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millpond"
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "GLOSSARY.md", *sorted(ROOT.glob("docs/**/*.md"))]
OF_A_POND = ("manifests/", "runs/", "pages/", "catalog/", "inbox/", "names/", "pins/", "lease/")
SPARK = ("engine/spark", "engine/daemon.py", "sources/", "sinks/")


def named(text: str) -> Iterator[str]:
    """Files and folders between backquotes; not those of the page's own examples."""
    examples = "".join(re.findall(r"```.*?```", text, re.S))
    for quoted in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)):
        for word in re.split(r"[,\s]+", quoted):
            if not re.fullmatch(r"\w[\w./*-]*(\.py|\.md|/)", word) or word.startswith((*OF_A_POND, "FILE")):
                continue
            if word not in examples:
                yield word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    where = (ROOT, ROOT / "src", SOURCE, ROOT / "tests" / "unit", ROOT / "examples", page.parent)
    missing = {word for word in named(text) if not any(any(base.glob(word.rstrip("/"))) for base in where)}
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    missing |= {link for link in links if not (page.parent / link).exists()}
    assert not missing
    if page.parent == ROOT:
        assert len(set(named(text))) > 20, "the names were found"


def test_imports_point_one_way() -> None:
    """Each imports what stands above it in the table of ARCHITECTURE.md; that table has everything."""
    rows = re.findall(r"^\| (`[^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    ranks = {
        place.removesuffix(".py").removesuffix("/"): rank
        for rank, row in enumerate(rows)
        for place in re.findall(r"`(\w+(?:\.py|/))`", row)
    }
    there = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert there - {"__init__", "__main__"} == set(ranks)
    wrong = [
        f"{file.relative_to(SOURCE)} imports {name}"
        for file in SOURCE.rglob("*.py")
        if (mine := file.relative_to(SOURCE).parts[0].removesuffix(".py")) in ranks
        for name in imported(file)
        if ranks.get(name.split(".")[0], 0) > ranks[mine]
    ]
    assert not wrong


def imported(file: Path) -> Iterator[str]:
    """Modules of ours that a file needs to be loaded: not what it loads later, or only for its types."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("millpond"):
            below = (node.module or "").removeprefix("millpond").removeprefix(".")
            yield from [below] if below else [alias.name for alias in node.names]


def test_spark_is_imported_in_a_few_places() -> None:
    found = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyspark")
        or (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "pyspark" for a in node.names))
    }
    assert found and all(name.startswith(SPARK) for name in found), found
