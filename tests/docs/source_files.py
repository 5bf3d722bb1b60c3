"""The source files of the package, parsed once, and the imports in them."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millpond"
Kind = Literal[
    "load", "types", "deferred"
]  # when the file is loaded, for type checking, when a function runs


@dataclass(frozen=True)
class SourceFile:
    path: str  # relative to src/millpond
    tree: ast.Module

    @property
    def package(self) -> str:
        """The folder under `millpond`, or the name of a module that is directly in it."""
        return self.path.split("/")[0].removesuffix(".py")


@dataclass(frozen=True)
class ModuleImport:
    module: str  # without "millpond."; "" is the package itself
    name: str | None  # the imported name, where it is not a module
    bound: str  # what it is called in the importing file
    kind: Kind

    @property
    def package(self) -> str:
        return self.module.split(".")[0]


@functools.cache
def source_files() -> tuple[SourceFile, ...]:
    files = sorted(SOURCE.rglob("*.py"))
    with _no_collection():
        return tuple(SourceFile(str(f.relative_to(SOURCE)), ast.parse(f.read_text())) for f in files)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Trees have millions of nodes and no garbage: collections take three times as long as parsing."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # later collections need not look at them either
        gc.enable()


@functools.cache
def modules() -> frozenset[str]:
    names = (f.path.removesuffix(".py").removesuffix("__init__").rstrip("/") for f in source_files())
    return frozenset(name.replace("/", ".") for name in names)


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, found once: a dozen tests look through all files."""
    with _no_collection():
        return tuple(ast.walk(tree))


@functools.cache
def imports(tree: ast.Module) -> tuple[ModuleImport, ...]:
    """All imports of our own modules, of every form and at every depth."""
    return tuple(_imports(tree.body, "load"))


def _imports(body: list[ast.stmt], kind: Kind) -> Iterator[ModuleImport]:
    for node in body:
        match node:
            case ast.Import():
                for alias in node.names:
                    if alias.name.split(".")[0] == "millpond":
                        bound = alias.asname or "millpond"
                        yield ModuleImport(alias.name.removeprefix("millpond").lstrip("."), None, bound, kind)
            case ast.ImportFrom():
                assert node.level == 0, "imports are absolute"
                if (node.module or "").split(".")[0] == "millpond":
                    yield from _names(node, kind)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _imports(node.body, "deferred")
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports(node.body, "types")
                yield from _imports(node.orelse, kind)
            case _:
                for field in ("body", "orelse", "finalbody"):
                    yield from _imports(getattr(node, field, []), kind)
                for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                    yield from _imports(inner.body, kind)


def _names(node: ast.ImportFrom, kind: Kind) -> Iterator[ModuleImport]:
    module = (node.module or "").removeprefix("millpond").lstrip(".")
    for alias in node.names:
        inner = f"{module}.{alias.name}".lstrip(".")
        if inner in modules():
            yield ModuleImport(inner, None, alias.asname or alias.name, kind)
        else:
            yield ModuleImport(module, alias.name, alias.asname or alias.name, kind)
