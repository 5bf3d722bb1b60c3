"""A view as it was when a DataFrame was loaded.

Law: the epoch of a DataFrame is chosen once, when it is loaded, and pinned; the pin expires by itself,
because Spark does not say when a DataFrame is no longer used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import StructType

from millpond.errors import InvalidError, nearest
from millpond.plan.view_changes import ViewTable, view_table
from millpond.serve.reader import Reader
from millpond.spark_bridge.options import SparkOptions
from millpond.spark_bridge.pond_location import opened
from millpond.spark_bridge.spark_types import spark_schema
from millpond.state.manifest.pins import Pin, try_pin
from millpond.state.manifest.snapshot import Snapshot


@dataclass(frozen=True)
class LoadedView:
    """The epoch of a DataFrame, and the columns that it reads."""

    name: str
    epoch: int
    schema: pa.Schema  # of these columns, with the names that the view shows
    pin: Pin | None  # protects the epoch; None where nothing can be written

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def spark_schema(self) -> StructType:
        return spark_schema(self.schema)

    def declared(self, schema: StructType) -> LoadedView:
        """Only the columns of a schema that the user declared; refused if the view has others."""
        there = {field.name: field for field in self.spark_schema.fields}
        require_columns(self.name, [field.name for field in schema.fields], list(there))
        for field in schema.fields:
            kind = there[field.name].dataType
            if kind != field.dataType:
                raise InvalidError(
                    f"column {field.name!r} of view {self.name!r} has another type",
                    detail=f"it is {kind.simpleString()}, the schema says {field.dataType.simpleString()}",
                    hint='choose columns with .option("columns", "a,b") instead, and cast them in Spark',
                )
        return replace(self, schema=pa.schema([self.schema.field(f.name) for f in schema.fields]))


def load_view(options: SparkOptions) -> LoadedView:
    """Choose the epoch of a DataFrame and pin it."""
    name = options.text("view", "read")
    with opened(options, "read") as reader, reader.pinned(options.epoch) as snapshot:
        schema = shown_schema(find_view(reader, snapshot, name))
        columns = options.names("columns")
        require_columns(name, columns or (), schema.names)
        chosen = pa.schema([schema.field(c) for c in columns or schema.names])
        return LoadedView(name, snapshot.epoch, chosen, pin_for_tasks(reader, snapshot.epoch))


def find_view(reader: Reader, snapshot: Snapshot, name: str) -> ViewTable:
    plan = reader.plan_of(snapshot.manifest)
    found = view_table(plan, name)
    if found is None:
        raise InvalidError(
            f"no view named {name!r}",
            detail=f"views are {', '.join(sorted(plan.views)) or 'none'}, in epoch {snapshot.epoch}",
            hint=nearest(name, plan.views),
        )
    return found


def shown_schema(view: ViewTable) -> pa.Schema:
    """The columns of a view with the names that it shows."""
    return view.view.shown(pa.schema([view.spec.schema.field(c) for c in view.columns]).empty_table()).schema


def shown_names(view: ViewTable) -> dict[str, str]:
    """The stored names of a view's columns with the names that it shows."""
    return dict(zip(view.columns, shown_schema(view).names, strict=True))


def require_columns(view: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    for column in wanted:
        if column not in there:
            raise InvalidError(
                f"view {view!r} has no column {column!r}",
                detail=f"columns are {', '.join(there)}",
                hint=nearest(column, there),
            )


def pin_for_tasks(reader: Reader, first: int, last: int | None = None) -> Pin | None:
    """Pin epochs for tasks that start later; the pin expires unless it is removed."""
    return try_pin(reader.store, first, reader.pin_until_us(), last=last)
