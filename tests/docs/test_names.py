"""Names: no class name is used twice, and the glossary has one row for each term that the code uses."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from typing import NamedTuple

from tests.docs.source_files import ROOT, SOURCE, nodes, source_files

# To be removed: class names that more than one file defines.  The list can only shrink.
KNOWN_TWICE: set[str] = set()
ROW = re.compile(r"^\| (\*\*.+?) \| (.+) \| (.+) \|$", re.M)


class Row(NamedTuple):
    terms: tuple[str, ...]
    meaning: str
    where: tuple[str, ...]


def test_no_class_name_twice() -> None:
    files: defaultdict[str, list[str]] = defaultdict(list)
    for file in source_files():
        for node in nodes(file.tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(file.path)
    twice = {name: where for name, where in files.items() if len(where) > 1}
    assert not {name: where for name, where in twice.items() if name not in KNOWN_TWICE}, "use other names"
    assert not KNOWN_TWICE - twice.keys(), "remove these from KNOWN_TWICE"


# File names that say nothing about what a file does; they must not come back.
OPAQUE = frozenset(
    [
        "whole",
        "held",
        "over",
        "past",
        "lives",
        "known",
        "hopeful",
        "during",
        "together",
        "at_once",
        "alone",
        "blame",
        "fresh",
        "moments",
        "growth",
        "partners",
        "grain",
        "newest",
        "alike",
        "pieces",
        "placing",
        "done",
        "lifting",
        "repeated",
        "index_end",
        "on_time",
        "watching",
        "readiness",
        "rewriting",
        "uses",
        "face",
        "door",
        "parts",
        "places",
        "user_places",
        "read_elsewhere",
        "utils",
        "helpers",
        "common",
        "misc",
    ]
)


def test_no_file_name_is_opaque() -> None:
    stems = {file.path.rpartition("/")[2].removesuffix(".py"): file.path for file in source_files()}
    assert len(stems) > 400
    assert not {path for stem, path in stems.items() if stem in OPAQUE}


def glossary() -> list[tuple[str, list[Row]]]:
    """Each section of GLOSSARY.md with its rows."""
    _, *sections = re.split(r"^## ", (ROOT / "GLOSSARY.md").read_text(), flags=re.M)
    return [
        (
            section.partition("\n")[0],
            [
                Row(
                    tuple(re.findall(r"\*\*(.+?)\*\*", terms)),
                    meaning,
                    tuple(re.findall(r"`([^`]+)`", where)),
                )
                for terms, meaning, where in ROW.findall(section)
            ],
        )
        for section in sections
    ]


def test_the_glossary_has_one_row_for_each_term() -> None:
    terms = [term for _, rows in glossary() for row in rows for term in row.terms]
    assert len(terms) > 60, "the rows were found"
    assert sorted(terms) == sorted(set(terms))
    lines = [line for line in (ROOT / "GLOSSARY.md").read_text().splitlines() if line.startswith("| **")]
    assert len(lines) == sum(len(rows) for _, rows in glossary()), "every row was understood"


def test_the_terms_of_a_section_are_sorted() -> None:
    for title, rows in glossary():
        first = [row.terms[0] for row in rows]
        assert first == sorted(first, key=str.lower), title


def test_the_glossary_names_files_that_use_the_term() -> None:
    """A term that its own file no longer uses is not a term of the code."""
    wrong = []
    for _, rows in glossary():
        for row in rows:
            assert row.where, f"{row.terms} has no file"
            for where in row.where:
                path = SOURCE / where
                assert path.is_file() or path.is_dir(), f"{row.terms}: no {where}"
            text = "\n".join(text_of(where) for where in row.where)
            wrong += [f"{term}: {', '.join(row.where)}" for term in row.terms if not uses(text, term)]
    assert not wrong


def text_of(where: str) -> str:
    path = SOURCE / where
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return "\n".join(f"{file.relative_to(SOURCE)}\n{file.read_text()}" for file in files)


def uses(text: str, term: str) -> bool:
    """Is the term in the text, as words or as an identifier?"""
    words = term.lower().split()
    spaced = r"[\s_-]*".join(map(re.escape, words))
    return re.search(rf"(?<![a-z]){spaced}", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()) is not None


def test_uses_finds_words_and_identifiers() -> None:
    assert uses("def key_hash(x)", "key hash")
    assert uses("class KeyHash", "key hash")
    assert uses("two epochs", "epoch")
    assert not uses("a monkey hash", "key hash")
