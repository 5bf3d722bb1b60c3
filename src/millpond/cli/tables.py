"""Finds the table that a user names on the command line: a view, or a step and one of its tables."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.engine.change.state_rows import EXPIRES
from millpond.errors import InvalidError
from millpond.plan.nodes import Plan, View
from millpond.plan.tables import table_specs
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class Named:
    """A table that a user named, and the columns to show."""

    name: str
    spec: TableSpec
    columns: tuple[str, ...]
    view: View | None = None

    def shown(self, rows: pa.Table) -> pa.Table:
        """Rows with their columns renamed to what the view calls them."""
        return rows if self.view is None else self.view.shown(rows)


def named(plan: Plan, words: Sequence[str]) -> tuple[Named, list[str]]:
    """The table that the first words name, and the words after it.

    ``STEP STATE``, ``STEP/STATE`` (as `state ls` prints it), or the name of a view.
    """
    specs = table_specs(plan)
    if not words:
        raise InvalidError(
            "no state is named", hint="STEP STATE, or a view; `millpond state ls POND` lists them"
        )
    first, rest = words[0], list(words[1:])
    if "/" in first and first in specs:
        return _table(specs[first]), rest
    if rest and f"{first}/{rest[0]}" in specs:
        return _table(specs[f"{first}/{rest[0]}"]), rest[1:]
    view = plan.views.get(first)
    if view is not None:
        columns = tuple(view.stored_columns(plan.shape(view.step).schema.names))
        return Named(first, specs[view.table], columns, view), rest
    wanted = first if "/" in first or not rest else f"{first}/{rest[0]}"
    known = [*specs, *plan.views]
    of_step = sorted(name.partition("/")[2] for name in specs if name.partition("/")[0] == first)
    matches = difflib.get_close_matches(wanted, known, 1) or difflib.get_close_matches(first, known, 1)
    raise InvalidError(
        f"no state named {wanted!r}",
        detail=f"step {first!r} has {', '.join(of_step)}" if of_step else None,
        hint=f"did you mean {matches[0]!r}?" if matches else "`millpond state ls POND` lists all of them",
    )


def _table(spec: TableSpec) -> Named:
    return Named(spec.name, spec, tuple(name for name in spec.schema.names if name != EXPIRES))


def keys(spec: TableSpec, words: Sequence[str]) -> list[list[Any]]:
    """Parse keys: one word each; several columns are separated by commas, or written as a JSON list.

    >>> spec = TableSpec("t/x", pa.schema([("a", pa.string()), ("n", pa.int64())]), ("a", "n"))
    >>> keys(spec, ["x,1", '["y,z", 2]'])
    [['x', 1], ['y,z', 2]]
    """
    found = []
    for word in words:
        if word.startswith("["):
            try:
                parts = json.loads(word)
            except ValueError as error:
                raise InvalidError(
                    "a key that begins with [ is a JSON list", detail=f"{word}: {error}"
                ) from error
        else:
            parts = word.split(",") if len(spec.key) > 1 else [word]
        if len(parts) != len(spec.key):
            raise InvalidError(
                f"the key has {len(spec.key)} columns",
                detail=f"{', '.join(spec.key)}; got {word!r}",
                hint="separate them with commas, or write a JSON list",
            )
        found.append([_value(spec, name, part) for name, part in zip(spec.key, parts, strict=True)])
    return found


def _value(spec: TableSpec, name: str, part: Any) -> Any:
    kind = spec.schema.field(name).type
    if part is None or not isinstance(part, str):
        return part
    try:
        return pa.array([part], pa.string()).cast(kind)[0].as_py()
    except pa.ArrowException as error:
        raise InvalidError(
            f"{part!r} is not a valid {kind}", detail=f"key column {name!r}: {error}"
        ) from error
