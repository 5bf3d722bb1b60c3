"""The passes of the physical plan, their order and their switches.

Law: a plan gives the same results with any passes on or off (law 3); the oracle and SQL suites run with all
on, all off and random subsets.

`MILLPOND_PASSES_OFF` switches passes off, for tests and to find a slow or wrong one: names separated by
commas, or `all`.  The driver reads it, and every epoch carries it to its tasks (`EpochSpec.passes_off`), so
that all tasks agree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache

from millpond.engine.task.passes.batch_reduction import batch_reduction
from millpond.engine.task.passes.batched_aggregates import batched_aggregates
from millpond.engine.task.passes.dictionary_columns import dictionary_columns
from millpond.engine.task.passes.fused_scans import fused_scans
from millpond.engine.task.passes.hash_order import hash_order
from millpond.engine.task.passes.row_positions import row_positions
from millpond.engine.task.passes.shared_filters import shared_filters
from millpond.engine.task.passes.shared_projections import shared_projections
from millpond.engine.task.task_plan import TaskPlan
from millpond.errors import InvalidError, nearest

VARIABLE = "MILLPOND_PASSES_OFF"

Pass = Callable[[TaskPlan], TaskPlan]

# In this order: a fused scan absorbs shared items, and later passes refine the items of earlier ones.
PASSES: tuple[Pass, ...] = (
    shared_filters,
    shared_projections,
    hash_order,
    batched_aggregates,
    row_positions,
    fused_scans,
    batch_reduction,
    dictionary_columns,
)

# Choices that the driver makes for an epoch, by its rows and by how long the last epoch took.
EPOCH_CHOICES: Mapping[str, str] = {
    "single_task": "one process runs all levels of an epoch that has one task in each",
    "plan_parts": "tasks run parts of the plan, where rows are few and views many",
    "local_lookup": "lookups run where the rows are, while every task knows their right side",
    "fewer_columns": "scans leave out columns that only failing rows would show",
}

NAMES: tuple[str, ...] = (*(each.__name__ for each in PASSES), *EPOCH_CHOICES)


def optimize(tasks: TaskPlan, off: Collection[str] = ()) -> TaskPlan:
    """The plan after all enabled passes; it records which of them changed it."""
    for each in PASSES:
        if each.__name__ not in off:
            changed = each(tasks)
            if changed is not tasks:
                tasks = replace(changed, passes=(*tasks.passes, each.__name__))
    return tasks


def passes_off() -> frozenset[str]:
    """The passes that the environment switches off."""
    return _parsed(os.environ.get(VARIABLE, ""))


@cache
def _parsed(text: str) -> frozenset[str]:
    names = {name for part in text.split(",") if (name := part.strip())}
    if "all" in names:
        return frozenset(NAMES)
    for name in sorted(names.difference(NAMES)):
        raise InvalidError(
            f"{VARIABLE} names no pass: {name!r}",
            detail=f"passes are {', '.join(NAMES)}",
            hint=nearest(name, NAMES),
        )
    return frozenset(names)
