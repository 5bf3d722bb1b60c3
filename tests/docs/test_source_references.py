"""What docstrings and comments of the source name exists: `folder/file.py` and `package.module.name`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.source_files import ROOT, SOURCE, modules, source_files

FILE = re.compile(r"`((?:\w+/)*\w+\.(?:py|md))`")
DOTTED = re.compile(r"`(?:millpond\.)?([a-z]\w*(?:\.\w+)+)`")
# Names with a dot that are no modules; `pond.name` is a call, which test_named_calls checks.
OTHERS = re.compile(r"pond\.\w+|state\.(step\.name|value)|.*\.(py|md)")


def unknown(text: str, path: str) -> list[str]:
    """The files and modules that a text names and that do not exist, as seen from a file of the source."""
    folders = [ROOT, *(SOURCE / path).parents]
    files = [name for name in FILE.findall(text) if not any((folder / name).exists() for folder in folders)]
    return files + [
        name for name in DOTTED.findall(text) if not OTHERS.fullmatch(name) and not is_there(name)
    ]


def is_there(name: str) -> bool:
    """Is it a module, or a name in one?  Names that do not begin with a package of ours are not judged."""
    words = name.split(".")
    if words[0] not in modules():
        return True
    length = max(n for n in range(1, len(words) + 1) if ".".join(words[:n]) in modules())
    path = SOURCE.joinpath(*words[:length])
    found: Path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return length == len(words) or re.search(rf"\b{words[length]}\b", found.read_text()) is not None


def test_files_and_modules_that_the_source_names_exist() -> None:
    wrong = {file.path: unknown((SOURCE / file.path).read_text(), file.path) for file in source_files()}
    assert not {path: names for path, names in wrong.items() if names}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see `pond/api.py` and `api.py`", []),
        ("see `pond/gone.py`", ["pond/gone.py"]),
        ("see `engine.task.checks` and `millpond.state.trust`", []),
        ("see `engine.checks`", ["engine.checks"]),
        ("see `hashing.VERSION`, `hashing.GONE`", ["hashing.GONE"]),
        ("see `pyarrow.compute.take`", []),
    ],
)
def test_a_name_that_is_gone_is_found(text: str, expected: list[str]) -> None:
    assert unknown(text, "pond/status.py") == expected
