"""Functions of the list of a group's rows: Python aggregates and sketches."""

from __future__ import annotations

from millpond.kernels import duck
from millpond.kernels.python_function import PythonFunction
from millpond.kernels.synopses.sql_functions import AGGREGATES, plain_name
from millpond.sql.bound.expressions import AggregateCall, BoundFunction


def python_aggregate(call: BoundFunction | AggregateCall) -> PythonFunction | None:
    """Return the Python aggregate that is called, or None."""
    found = duck.provided().get(call.name) if "#" in call.name else None
    return found if isinstance(found, PythonFunction) and found.kind == "aggregate" else None


def sketch(call: BoundFunction | AggregateCall) -> str | None:
    """Return the sketch aggregate that a call is, as a function of a list, or None."""
    name = plain_name(call.name)
    return name if name in AGGREGATES else None


def is_list_aggregate(call: BoundFunction | AggregateCall) -> bool:
    return python_aggregate(call) is not None or sketch(call) is not None
