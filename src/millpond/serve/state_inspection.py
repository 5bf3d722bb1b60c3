"""Reads any state table of any step at any retained epoch.

User values are unpickled only on request, and only in a trusted pond: a pickle can run code.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millpond import moved_names
from millpond.engine.change.state_rows import EXPIRES, is_pickled, python_rows
from millpond.errors import InvalidError, UnavailableError
from millpond.plan.nodes import Plan
from millpond.plan.step_versions import newest
from millpond.process.batch_process import BatchProcess
from millpond.process.keyed_process import KeyedProcess
from millpond.state.manifest.snapshot import Snapshot
from millpond.state.runs.compaction import cut_units
from millpond.state.tables.repeat_by_weight import repeat_by_weight
from millpond.state.tables.table import KeySet, Table
from millpond.state.tables.table_spec import TableSpec
from millpond.state.trust import Trust

UNIT_BYTES = 64 << 20  # the size of runs that are read together


@dataclass(frozen=True)
class StateInfo:
    """One state table: `rows` is an upper bound, known without reading it."""

    step: str
    state: str
    rows: int
    bytes: int


def state_infos(snapshot: Snapshot, plan: Plan) -> list[StateInfo]:
    """All state tables of interest to users; internal tables have a dot in their name."""
    infos = []
    for node in plan.nodes.values():
        for table in node.binding.tables:
            name = state_name(table)
            if "." not in name:
                runs = snapshot.runs(table.name)
                infos.append(
                    StateInfo(node.step, name, sum(r.rows for r in runs), sum(r.bytes for r in runs))
                )
    return infos


def state_name(table: TableSpec) -> str:
    return table.name.rpartition("/")[2]


def find_state(plan: Plan, step: str, name: str) -> TableSpec:
    node = plan.nodes.get(step)
    if node is None:
        ends = [known for known in plan.nodes if known.endswith(f".{step}")]  # a derived id
        matches = ends or difflib.get_close_matches(step, plan.nodes, 1)
        raise InvalidError(
            f"no step named {step!r}",
            detail=f"steps are {', '.join(plan.nodes) or 'none'}",
            hint=f"did you mean {matches[0]!r}?" if matches else None,
        )
    tables = {state_name(table): table for table in node.binding.tables}
    if name not in tables:
        known = [n for n in tables if "." not in n]
        matches = difflib.get_close_matches(name, known, 1)
        raise InvalidError(
            f"step {step!r} has no state {name!r}",
            detail=f"its states are {', '.join(known) or 'none'}",
            hint=f"did you mean {matches[0]!r}?" if matches else None,
            step=step,
        )
    return tables[name]


def state_table(plan: Plan, step: str, name: str) -> tuple[TableSpec, list[str]]:
    """The table of a state and the columns that users see; SQL writes names in any case."""
    known = newest(plan.nodes, step)
    if known not in plan.nodes:
        known = next((one for one in plan.nodes if one.lower() == step.lower()), known)
    states = [] if known not in plan.nodes else map(state_name, plan.nodes[known].binding.tables)
    spec = find_state(plan, known, next((one for one in states if one.lower() == name.lower()), name))
    return spec, [column for column in spec.schema.names if column != EXPIRES]


def state_batches(snapshot: Snapshot, plan: Plan, spec: TableSpec) -> Iterator[pa.Table]:
    """The live rows in the columns that users see, in bounded batches; at least one table."""
    refs = snapshot.runs(spec.name)
    names = [name for name in spec.schema.names if name != EXPIRES]
    expired_until = _expired_until(snapshot, plan, spec)
    for h_min, h_max in cut_units(max(1, math.ceil(sum(r.bytes for r in refs) / UNIT_BYTES))):
        rows = Table(spec, refs, snapshot.open_file, h_min, h_max).scan()
        yield repeat_by_weight(_alive(rows, expired_until), names)


def rows_of_keys(snapshot: Snapshot, plan: Plan, spec: TableSpec, keys: pa.Table) -> pa.Table:
    """The live rows of some keys, in the columns that users see; the cost follows the keys."""
    names = [name for name in spec.schema.names if name != EXPIRES]
    rows = snapshot.table(spec).lookup(KeySet.of(keys, spec.key)).table
    return repeat_by_weight(_alive(rows, _expired_until(snapshot, plan, spec)), names)


def _alive(rows: pa.Table, expired_until: int | None) -> pa.Table:
    if expired_until is None:
        return rows
    ended = pa.compute.less_equal(rows.column(EXPIRES), pa.scalar(expired_until, pa.timestamp("us")))
    return rows.filter(pa.compute.invert(pa.compute.fill_null(ended, False)))


def _expired_until(snapshot: Snapshot, plan: Plan, spec: TableSpec) -> int | None:
    """The time at or before which rows have expired for the step, although they may still be stored."""
    step, _, name = spec.name.rpartition("/")
    node = plan.nodes[step]
    states = node.operator.states if isinstance(node.operator, KeyedProcess | BatchProcess) else ()
    ttl = next((state.ttl for state in states if state.name == name), None)
    if ttl is None or EXPIRES not in spec.schema.names:
        return None
    if ttl.clock == "processing":
        return snapshot.manifest.now_us
    mark = plan.shape(node.inputs[0]).watermark
    watermark = snapshot.manifest.watermarks.get(mark or "")
    return None if watermark is None else int(watermark["bound"])


def shown(spec: TableSpec, table: pa.Table, trust: Trust) -> pa.Table:
    """Pickled columns as the `repr` of their values."""
    _require(spec, trust)
    for index, name in enumerate(table.column_names):
        if is_pickled(spec.schema.field(name)):
            values = [
                None if raw is None else repr(moved_names.loads(raw))
                for raw in table.column(name).to_pylist()
            ]
            table = table.set_column(index, name, pa.array(values, pa.string()))
    return table


def as_rows(spec: TableSpec, table: pa.Table, trust: Trust) -> list[dict[str, Any]]:
    _require(spec, trust)
    return python_rows(spec, table)


def _require(spec: TableSpec, trust: Trust) -> None:
    """Refuse an untrusted pond: a pickle can run code."""
    if any(is_pickled(field) for field in spec.schema):
        trust.require(f"the pickle of state {spec.name!r}")


def export(parts: Iterator[pa.Table], path: str | os.PathLike[str], facts: Mapping[str, str]) -> int:
    """Write one Parquet file, completely or not at all; returns the number of rows."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or Path(path).expanduser().is_dir():
        raise InvalidError("export() needs the path of a file", detail=f"got {path!r}")
    target = Path(path).expanduser()
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")
    rows = 0
    try:
        with contextlib.ExitStack() as stack:
            writer = None
            for table in parts:
                if writer is None:
                    schema = table.schema.with_metadata({**(table.schema.metadata or {}), **facts})
                    writer = stack.enter_context(pq.ParquetWriter(temporary, schema))
                writer.write_table(table.replace_schema_metadata(schema.metadata))
                rows += table.num_rows
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise UnavailableError(f"{target} cannot be written", detail=str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return rows
