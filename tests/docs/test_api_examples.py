"""Every public method has an example in its docstring, and all examples in src are executed."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
from pathlib import Path

import pytest

from tests.docs.api_examples import (
    CLASSES,
    FLAGS,
    STATES,
    docstring,
    has_example,
    public_members,
    run_example,
)
from tests.docs.source_files import SOURCE

METHODS = [(cls, name) for cls in CLASSES for name in public_members(cls)]
LIBRARIES = {"to_pandas": "pandas", "to_polars": "polars"}
IN_SPARK = {"to_spark"}  # tests/spark runs these
OF_CLASSES = {cls.__name__ for cls in (*CLASSES, *STATES)}


@pytest.mark.parametrize(("cls", "name"), METHODS, ids=[f"{c.__name__}.{n}" for c, n in METHODS])
def test_every_public_method_has_an_example_that_runs(cls: type, name: str, tmp_path: Path) -> None:
    assert has_example(docstring(cls, name)), f"{cls.__name__}.{name} has no example"
    if name in IN_SPARK:
        return
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    assert run_example(cls, name, tmp_path) == ""


@pytest.mark.parametrize("cls", STATES, ids=lambda cls: cls.__name__)
def test_every_kind_of_state_has_an_example_that_runs(cls: type, tmp_path: Path) -> None:
    assert has_example(cls.__doc__ or "")
    assert run_example(cls, None, tmp_path) == ""


def test_the_runner_notices_a_wrong_example(tmp_path: Path) -> None:
    class Wrong:
        """
        >>> n = 1
        """

        def off(self) -> None:
            """
            >>> n + 1
            3
            """

    assert "Got:\n    2" in run_example(Wrong, "off", tmp_path)


MODULES = sorted(
    path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text() and path.name != "__main__.py"
)


@pytest.mark.parametrize("module", MODULES)
def test_the_other_examples_of_a_module_run(module: str) -> None:
    found = importlib.import_module(f"millpond.{module}".removesuffix(".__init__"))
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    said: list[str] = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(found):
        if not OF_CLASSES & set(test.name.split(".")):
            runner.run(test, out=said.append)
    assert not said, "".join(said)
