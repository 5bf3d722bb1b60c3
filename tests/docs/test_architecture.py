"""ARCHITECTURE.md and GLOSSARY.md name files that exist, and imports follow the table in ARCHITECTURE.md.

Packages do not use each other's private names.
The exceptions are listed here with the reason, or with the package that has to remove them.
A list can only shrink: an entry that is no longer needed fails the test.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.source_files import ROOT, SOURCE, SourceFile, imports, nodes, source_files

PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "GLOSSARY.md", *sorted(ROOT.glob("docs/**/*.md"))]
OF_A_POND = ("manifests/", "runs/", "pages/", "catalog/", "inbox/", "names/", "pins/", "lease/")
SPARK = ("engine/spark/", "sources/", "sinks/", "spark_bridge/")

# Imports inside functions, with the reason why they cannot be at the top of the file.
DEFERRED = {
    "cli/__init__.py -> cli.app": "other processes import cli modules and need no commands",
    "engine/spark/daemon.py -> engine.spark.worker_exits": "Spark's daemon forks before it needs this",
    "engine/spark/engine.py -> engine.task.worker": "runs in a Spark worker only",
    "pond/api.py -> server.server": "pond.serve(...) is part of the API; serving is loaded where it is used",
    "engine/coordinator/inbox_polling.py -> engine.coordinator.inbox_changes": "SQL is loaded where it is used",
    "pond/sessions.py -> pond.sql_host": "SQL is loaded where it is used",
    "pond/sessions.py -> pond.transaction": "SQL is loaded where it is used",
    "pond/definitions.py -> kernels.python_function": "SQL is loaded where it is used",
    "pond/definitions.py -> sql.binding.catalog": "SQL is loaded where it is used",
    "pond/definitions.py -> sql.binding.python_functions": "SQL is loaded where it is used",
    "serve/replay.py -> engine.coordinator.inbox_changes": "SQL is loaded where it is used",
    "pond/execution.py -> engine.spark.engine": "the inline engine works without pyspark",
    "state/store/store.py -> state.store.local_store": "a store imports only the implementation it opens",
    "state/store/store.py -> state.store.disk_cache": "a store imports only the implementation it opens",
    "state/store/store.py -> state.store.memory_store": "a store imports only the implementation it opens",
    "state/store/store.py -> state.store.object_store": "a store imports only the implementation it opens",
    "state/store/store.py -> state.store.waiting_store": "a store imports only the implementation it opens",
}

# Imports that point the wrong way, each with the reason why it stays.
KNOWN_UPWARD = {
    "pond/api.py -> server.server": "pond.serve(...) is part of the API, and a server needs a pond",
}

NOT_OURS = {"_submit", "_getframe", "_replace"}  # of duckdb, of sys, of named tuples


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


def test_the_table_of_suites_names_every_folder_of_tests_once() -> None:
    listed = re.findall(r"^\| `tests/(\w+)` \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    assert sorted(listed) == sorted(
        {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    )


def test_the_table_of_a_package_names_each_of_its_files() -> None:
    """Where the docstring of a package has a table, a file that it lacks cannot be found there."""
    tables = {
        path.parent: set(re.findall(r"`([\w/]+\.py)`", path.read_text()))
        for path in SOURCE.rglob("__init__.py")
        if "| file |" in path.read_text()
    }
    assert len(tables) > 5, "the tables were found"
    missing = {
        f"{file.relative_to(SOURCE)}"
        for folder, listed in tables.items()
        for file in folder.glob("*.py")
        if file.name not in {"__init__.py", *listed}
    }
    assert not missing


def ranks() -> dict[str, int]:
    """Each package with the number of its row in the table "Where things are"."""
    rows = re.findall(r"^\| (`[^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    return {
        place.removesuffix(".py").removesuffix("/"): rank
        for rank, row in enumerate(rows)
        for place in re.findall(r"`(\w+(?:\.py|/))`", row)
    }


def test_the_table_names_every_package() -> None:
    there = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert there - {"__init__", "__main__"} == set(ranks())


def test_imports_point_one_way() -> None:
    """A package imports what is above it in the table; imports for types and in functions count too."""
    rank = ranks()
    upward = {
        f"{file.path} -> {found.module}"
        for file in source_files()
        if file.package in rank
        for found in imports(file.tree)
        if rank.get(found.package, 0) > rank[file.package]
    }
    assert upward == set(KNOWN_UPWARD)


def test_packages_in_one_row_do_not_import_each_other_both_ways() -> None:
    rank = ranks()
    edges: defaultdict[str, set[str]] = defaultdict(set)
    for file in source_files():
        for found in imports(file.tree):
            if found.package != file.package and rank.get(found.package) == rank.get(file.package, -1):
                edges[file.package].add(found.package)
    assert edges, "some packages of one row import each other"
    for package in list(edges):
        assert package not in reachable(edges, package), f"{package} imports itself through its row"


def reachable(edges: defaultdict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = list(edges[start])
    while todo:
        package = todo.pop()
        if package not in found:
            found.add(package)
            todo += edges[package]
    return found


def test_imports_inside_functions_have_a_reason() -> None:
    deferred = {
        f"{file.path} -> {found.module}"
        for file in source_files()
        for found in imports(file.tree)
        if found.kind == "deferred"
    }
    assert deferred == set(DEFERRED)


def test_packages_do_not_import_private_names_of_others() -> None:
    """Neither `from millpond.x import _name` nor `module._name`."""
    private = [
        f"{file.path}: {name}"
        for file in source_files()
        for name in (*private_imports(file), *private_names_of_modules(file))
    ]
    assert not private


def private_imports(file: SourceFile) -> Iterator[str]:
    for found in imports(file.tree):
        if found.package != file.package and is_private(found.name or ""):
            yield f"{found.module}.{found.name}"


def private_names_of_modules(file: SourceFile) -> Iterator[str]:
    theirs = {i.bound: i.module for i in imports(file.tree) if i.name is None and i.package != file.package}
    for node in nodes(file.tree):
        match node:
            case ast.Attribute(attr=name, value=ast.Name(id=module)) if module in theirs and is_private(name):
                yield f"{theirs[module]}.{name}"
            case _:
                pass


def test_packages_do_not_use_private_attributes_of_others() -> None:
    """`value._name`, where only other packages define an attribute of that name."""
    owners = private_attributes()
    used = {
        f"{file.path}: {node.attr}"
        for file in source_files()
        for node in nodes(file.tree)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in NOT_OURS
        if node.attr in owners and file.package not in owners[node.attr]
    }
    assert not used


def private_attributes() -> dict[str, set[str]]:
    """The packages that define each private attribute: as a method, a field, or by assignment."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for file in source_files():
        for node in nodes(file.tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    owners[name].add(file.package)
                case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                    owners[name].add(file.package)
                case ast.Constant(value=str(name)):  # __slots__, setattr
                    owners[name].add(file.package)
                case _:
                    pass
    return {name: packages for name, packages in owners.items() if is_private(name)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_spark_is_imported_in_a_few_places() -> None:
    found = {
        file.path
        for file in source_files()
        for node in nodes(file.tree)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyspark")
        or (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "pyspark" for a in node.names))
    }
    assert found and all(name.startswith(SPARK) for name in found), found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import millpond.state.inbox", ("state.inbox", "load")),
        ("from millpond.state import inbox", ("state.inbox", "load")),
        ("def f():\n    from millpond.state.inbox import append", ("state.inbox", "deferred")),
        ("class C:\n    def f(self):\n        import millpond.delta", ("delta", "deferred")),
        ("if TYPE_CHECKING:\n    from millpond.pond import Pond", ("pond", "types")),
        ("try:\n    import millpond.delta\nexcept ImportError:\n    pass", ("delta", "load")),
    ],
)
def test_every_form_of_import_is_found(text: str, expected: tuple[str, str]) -> None:
    assert [(i.module, i.kind) for i in imports(ast.parse(text))] == [expected]
