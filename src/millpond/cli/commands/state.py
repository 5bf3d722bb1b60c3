"""`millpond state`: lists, reads, compares and exports the state tables of a pond at any retained epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from millpond.cli.arguments import (
    TEXT,
    EpochOption,
    LimitOption,
    OutputOption,
    PondArgument,
    TrustOption,
    open_reader,
    parse_epoch,
)
from millpond.cli.commands.views import shown
from millpond.cli.output import MessagePart, OutputColumn, TablePart
from millpond.cli.tables import Named, keys, named
from millpond.cli.values import count, size
from millpond.errors import InvalidError
from millpond.plan.nodes import Plan
from millpond.plan.tables import table_specs
from millpond.serve import state_inspection
from millpond.serve.reader import keys_table
from millpond.state.manifest.snapshot import Snapshot, difference

COLUMNS = (
    OutputColumn("table"),
    OutputColumn("views"),
    OutputColumn("key"),
    OutputColumn("columns"),
    OutputColumn("rows", "rows in runs", count, right=True),
    OutputColumn("runs", show=count, right=True),
    OutputColumn("bytes", "size", size, right=True),
)
STATE = "STEP STATE|VIEW"
PICKLE = {b"millpond": b"pickle"}


def ls(
    pond: PondArgument,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also show internal tables of steps.")
    ] = False,
    epoch: EpochOption = None,
    output: OutputOption = TEXT,
) -> None:
    """List the state tables: step and name, key, columns and size."""
    reader = open_reader(pond)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        plan = reader.plan_of(snapshot.manifest)
        rows = []
        for name, spec in sorted(table_specs(plan).items()):
            if not everything and ("/" not in name or "." in name.rpartition("/")[2]):
                continue
            runs = snapshot.listing.runs(name)
            rows.append(
                {
                    "table": name,
                    "step": name.rpartition("/")[0],
                    "state": name.rpartition("/")[2],
                    "views": sorted(v.name for v in plan.views.values() if v.table == name),
                    "key": list(spec.key),
                    "columns": {f.name: str(f.type) for f in spec.schema},
                    "rows": sum(r.rows for r in runs),
                    "runs": len(runs),
                    "bytes": sum(r.bytes for r in runs),
                }
            )
        at = snapshot.epoch
    output.write(TablePart("tables", COLUMNS, rows, f"{len(rows)} tables at epoch {at}", {"epoch": at}))


def get(
    pond: PondArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar=f"{STATE} [KEY]...",
            help="A step and its state, or a view; then keys, with commas between columns; none: all rows.",
            show_default=False,
        ),
    ],
    epoch: EpochOption = None,
    unpickle: Annotated[
        bool,
        typer.Option("--unpickle", help="Show untyped values; this runs code of the author of the pond."),
    ] = False,
    trust: TrustOption = False,
    limit: LimitOption = 20,
    output: OutputOption = TEXT,
) -> None:
    """Read a state: all rows, or those of some keys."""
    reader = open_reader(pond, trust)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        plan = reader.plan_of(snapshot.manifest)
        found, rest = named(plan, words)
        wanted = keys_table(found.spec, keys(found.spec, rest)) if rest else None
        table = found.shown(rows_of(snapshot, plan, found, wanted))
        at = snapshot.epoch
    table = state_inspection.shown(found.spec, table, reader.worker.trust) if unpickle else legible(table)
    output.write(shown(table, at, limit))


def rows_of(snapshot: Snapshot, plan: Plan, found: Named, wanted: pa.Table | None) -> pa.Table:
    """All live rows, or those of some keys."""
    if found.spec.name.rpartition("/")[0] not in plan.nodes:  # of the pond itself, not of a step
        if wanted is None:
            return snapshot.scan(found.spec, found.columns)
        return snapshot.lookup(found.spec, wanted, found.columns)
    if wanted is not None:
        return state_inspection.rows_of_keys(snapshot, plan, found.spec, wanted).select(list(found.columns))
    return pa.concat_tables(
        part.select(list(found.columns))
        for part in state_inspection.state_batches(snapshot, plan, found.spec)
    )


def parts_of(snapshot: Snapshot, plan: Plan, found: Named) -> Iterator[pa.Table]:
    found_in = state_inspection.state_batches(snapshot, plan, found.spec)
    return (found.shown(part.select(list(found.columns))) for part in found_in)


def diff(
    pond: PondArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar=f"{STATE} E1 E2",
            help="A step and its state, or a view; then two epochs or savepoints.",
            show_default=False,
        ),
    ],
    limit: LimitOption = 20,
    output: OutputOption = TEXT,
) -> None:
    """Show what changed in a state from epoch E1 to E2: rows with their weight, -1 removed and +1 added."""
    reader = open_reader(pond)
    if len(words) < 3:
        raise InvalidError("two epochs are needed", hint=f"millpond state diff POND {STATE} E1 E2")
    first, last = parse_epoch(words[-2]), parse_epoch(words[-1])
    with reader.pinned(first) as before, reader.pinned(last) as after:
        found, rest = named(reader.plan_of(after.manifest), words[:-2])
        if rest:
            raise InvalidError("a diff takes no key", detail=f"got {' '.join(rest)!r}")
        table = found.shown(difference(before, after, found.spec, found.columns))
        rows = legible(table)
        e1, e2 = before.epoch, after.epoch
    part = shown(rows, e2, limit)
    note = f"{table.num_rows} rows differ from epoch {e1} to {e2}"
    facts = {"from": e1, "to": e2, "total": table.num_rows}
    output.write(TablePart("rows", part.columns, part.rows, note, facts))


def export(
    pond: PondArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar=f"{STATE} FILE.parquet",
            help="A step and its state, or a view; then the file to write.",
            show_default=False,
        ),
    ],
    epoch: EpochOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
    output: OutputOption = TEXT,
) -> None:
    """Write a state or a view, as of one epoch, to a Parquet file."""
    reader = open_reader(pond)
    if len(words) < 2:
        raise InvalidError("a file is needed", hint=f"millpond state export POND {STATE} FILE.parquet")
    target = Path(words[-1]).expanduser()
    if target.suffix != ".parquet":
        raise InvalidError("the file must end in .parquet", detail=f"got {words[-1]!r}")
    if target.exists() and not force:
        raise InvalidError(f"{target} is there already", hint="another name, or --force")
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        plan = reader.plan_of(snapshot.manifest)
        found, rest = named(plan, words[:-1])
        if rest:
            raise InvalidError("an export takes no key", detail=f"got {' '.join(rest)!r}")
        at = snapshot.epoch
        facts = {"millpond.state": found.name, "millpond.epoch": str(at)}
        rows = state_inspection.export(parts_of(snapshot, plan, found), target, facts)
    output.write(
        MessagePart(
            f"{rows} rows of {found.name} at epoch {at} are in {target}",
            {"state": found.name, "epoch": at, "rows": rows, "file": str(target)},
        )
    )


def legible(table: pa.Table) -> pa.Table:
    """Replace pickled values by their size: reading state runs no stored code."""
    for place, column in enumerate(table.schema):
        if dict(column.metadata or {}).items() >= PICKLE.items():
            shown_as: list[Any] = [
                None if v is None else f"pickle, {len(v)} bytes" for v in table.column(place).to_pylist()
            ]
            table = table.set_column(place, column.name, pa.array(shown_as, pa.string()))
    return table
