"""`millpond views`, `read` and `errors`: read a pond without starting it."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from millpond.cli.arguments import (
    TEXT,
    EpochOption,
    LimitOption,
    OutputOption,
    PondArgument,
    open_reader,
    parse_epoch,
)
from millpond.cli.output import OutputColumn, TablePart
from millpond.cli.values import count, size
from millpond.plan.tables import table_specs

COLUMNS = (
    OutputColumn("view"),
    OutputColumn("key"),
    OutputColumn("columns"),
    OutputColumn("rows", "rows in runs", count, right=True),
    OutputColumn("runs", show=count, right=True),
    OutputColumn("bytes", "size", size, right=True),
)


def views(pond: PondArgument, epoch: EpochOption = None, output: OutputOption = TEXT) -> None:
    """List the views with their keys, columns and size."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        plan = reader.plan_of(snapshot.manifest)
        specs = table_specs(plan)
        rows = []
        for view in sorted(plan.views.values(), key=lambda v: v.name):
            runs = snapshot.listing.runs(view.table)
            schema = plan.shape(view.step).schema
            called = {stored: shown for shown, stored in view.columns}
            rows.append(
                {
                    "view": view.name,
                    "key": [called.get(k, k) for k in specs[view.table].key],
                    "columns": {
                        called.get(n, n): str(schema.field(n).type) for n in view.stored_columns(schema.names)
                    },
                    "rows": sum(r.rows for r in runs),
                    "runs": len(runs),
                    "bytes": sum(r.bytes for r in runs),
                }
            )
    output.write(TablePart("views", COLUMNS, rows))


def read(
    pond: PondArgument,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="Name of the view.", show_default=False)],
    epoch: EpochOption = None,
    limit: LimitOption = 20,
    output: OutputOption = TEXT,
) -> None:
    """Read a view: at the newest epoch, at an older one, or at a savepoint."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        at = snapshot.epoch
        table = reader.read(view, epoch=at)
    output.write(shown(table, at, limit))


def errors(
    pond: PondArgument,
    view: Annotated[
        str | None,
        typer.Option(
            "--view", metavar="VIEW", help="Only those of the steps of this view.", show_default=False
        ),
    ] = None,
    epoch: EpochOption = None,
    limit: LimitOption = 20,
    output: OutputOption = TEXT,
) -> None:
    """List the rows that could not be processed, with the step and the reason."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        at = snapshot.epoch
        table = reader.errors(view, epoch=at)
    output.write(shown(table, at, limit))


def shown(table: pa.Table, epoch: int, limit: int) -> TablePart:
    """The first rows of a table, and the total number."""
    part = table.slice(0, limit) if limit else table
    columns = [OutputColumn(f.name, right=is_number(f.type)) for f in table.schema]
    some = f"{part.num_rows} of " if part.num_rows < table.num_rows else ""
    note = f"{some}{table.num_rows} rows at epoch {epoch}" + ("; --limit 0 shows all" if some else "")
    return TablePart("rows", columns, part.to_pylist(), note, {"epoch": epoch, "total": table.num_rows})


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
