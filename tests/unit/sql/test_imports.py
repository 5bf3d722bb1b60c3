"""Imports inside `sql/`: rules do not know each other, and bound plans, passes and steps have no cycle."""

from __future__ import annotations

from collections import defaultdict

from tests.docs.source_files import imports, source_files

LAYERS = ("sql/binding/", "sql/bound/", "sql/passes/", "sql/lowering/")


def edges() -> dict[str, set[str]]:
    """Return what each file of the layers imports when it is loaded, by module name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in source_files():
        if file.path.startswith(LAYERS):
            name = file.path.removesuffix(".py").replace("/", ".")
            for one in imports(file.tree):
                if one.kind != "types":
                    found[name] |= {one.module, f"{one.module}.{one.name}"}
    return {name: {m for m in read if m in found and m != name} for name, read in found.items()}


def test_rules_do_not_import_each_other() -> None:
    rules = {name: read for name, read in edges().items() if name.startswith("sql.lowering.rules.")}
    assert len(rules) > 15
    assert not {name: read & rules.keys() for name, read in rules.items() if read & rules.keys()}


def test_only_the_table_imports_rules() -> None:
    users = {name for name, read in edges().items() if any(m.startswith("sql.lowering.rules.") for m in read)}
    assert users == {"sql.lowering.rule_table"}


def test_no_module_imports_itself_through_others() -> None:
    known = edges()
    for start in known:
        met: set[str] = set()
        waiting = list(known[start])
        while waiting:
            one = waiting.pop()
            if one not in met:
                met.add(one)
                waiting += known[one]
        assert start not in met, f"{start} imports itself through {sorted(met)}"


def test_passes_do_not_import_lowering() -> None:
    known = edges()
    assert len([name for name in known if name.startswith(("sql.bound.", "sql.passes."))]) > 20
    for name, read in known.items():
        if name.startswith(("sql.bound.", "sql.passes.")):
            assert not {m for m in read if m.startswith("sql.lowering.")}, name
        if name.startswith("sql.bound."):
            assert not {m for m in read if m.startswith("sql.passes.")}, name
