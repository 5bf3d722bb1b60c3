"""Every public name of an operator or a source is known: a misspelt hook would silently do nothing."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from typing import Any

import pytest

from millpond.kernels.python_function import CallsPythonFunctions
from millpond.operators import operator, source_traits, traits
from millpond.plan import tags
from millpond.process.declaration import Declared
from millpond.sources.source import Source
from tests.docs.source_files import nodes, source_files

# Called on the class by its name, where mypy sees a misspelt one: no hooks.
CALLED_BY_CLASS = {
    "KafkaChanges": {"check", "cluster", "place"},
    "Aggregate": {"advance", "always", "kept", "until"},
    "AssignWindows": {"spread"},
    "Hop": {"spread"},
    "TopN": {"last", "split"},
    "KeyedProcess": {"given"},
    "ConstantSource": {"all_rows", "of"},
    "OneRow": {"all_rows"},
    "InboxTable": {"filled", "takes"},
    "KafkaSource": {"check", "cluster", "place", "splits", "unread"},
    "KafkaTopicsSource": {"check"},
    "MemorySource": {"push"},
}


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def declared(cls: type) -> set[str]:
    """Names that a class defines or annotates."""
    return {n for c in cls.__mro__ for n in (*vars(c), *inspect.get_annotations(c)) if not n.startswith("_")}


def trait_names(module: Any) -> set[str]:
    here = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
    return {name for cls in here for name in declared(cls)}


def stored(*needed: str) -> list[type]:
    found = [tags.class_of(tag) for tag in sorted(tags.ADDRESSES)]
    return [cls for cls in found if all(hasattr(cls, name) for name in needed)]


OPERATORS = stored("bind", "apply", "requires")
SOURCES = stored("poll", "read")


def fields_of(cls: type) -> set[str]:
    return {f.name for f in dataclasses.fields(cls)}


def unknown(cls: type, known: set[str]) -> set[str]:
    return public(cls) - known - fields_of(cls) - CALLED_BY_CLASS.get(cls.__name__, set())


def test_all_operators_and_sources_are_looked_at() -> None:
    assert len(OPERATORS) >= 38 and len(SOURCES) >= 6


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.__name__)
def test_every_public_name_of_an_operator_is_known(cls: type) -> None:
    known = declared(operator.Operator) | trait_names(traits) | declared(CallsPythonFunctions)
    if issubclass(cls, Declared):
        known |= declared(Declared)
    assert not unknown(cls, known)


@pytest.mark.parametrize("cls", SOURCES, ids=lambda cls: cls.__name__)
def test_every_public_name_of_a_source_is_known(cls: type) -> None:
    assert not unknown(cls, declared(Source) | trait_names(source_traits))


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.__name__)
def test_an_operator_with_the_methods_of_a_trait_inherits_it(cls: type) -> None:
    here = [t for t in vars(traits).values() if inspect.isabstract(t) and t.__module__ == traits.__name__]
    assert len(here) > 8
    for trait in here:
        methods: frozenset[str] = trait.__abstractmethods__
        assert issubclass(cls, trait) == (methods <= public(cls)), trait


ASKING = (
    "engine",
    "plan",
    "sql",
    "pond",
    "serve",
)  # packages that ask operators and sources what they can do


def asked_by_name(tree: ast.AST) -> set[str]:
    """The names in `hasattr(value, "name")` and `getattr(value, "name")`."""
    return {
        str(node.args[1].value)
        for node in nodes(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in ("hasattr", "getattr") and isinstance(node.args[1], ast.Constant)
    }


def test_no_one_asks_for_a_capability_by_name() -> None:
    """`isinstance` with a trait, which mypy checks, is the only way."""
    names = {name for cls in (*OPERATORS, *SOURCES) for name in (*public(cls), *fields_of(cls))}
    names |= declared(Source) | trait_names(traits) | trait_names(source_traits)
    files = [file for file in source_files() if file.package in ASKING]
    assert len(files) > 100
    asked = {f"{file.path}: {name}" for file in files for name in asked_by_name(file.tree) & names}
    assert not asked
    assert asked_by_name(ast.parse("getattr(node.operator, 'steps', ())")) == {"steps"}


def test_a_misspelt_hook_is_found() -> None:
    @dataclasses.dataclass(frozen=True)
    class Broken(traits.EndsState):
        def dues(self) -> bool:
            return True

    known = declared(operator.Operator) | trait_names(traits)
    assert unknown(Broken, known) == {"dues"}
    with pytest.raises(TypeError, match="abstract"):
        Broken()  # type: ignore[abstract]
