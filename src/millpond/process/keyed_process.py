"""KeyedProcess: runs a user's Python per key, with state, timers and side outputs.

Law: the result of an epoch is a function of the state before it and of the
rows it admits (law 3): rows of a key run in the order of (event time, origin)
and timers in the order of their times, at any parallelism.  The cost depends on
the touched keys and the touched elements (law 5): their state is fetched in one
lookup per table before the loop, and written as one change after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millpond.column_names import check_names
from millpond.delta import ORIGIN
from millpond.errors import InvalidError
from millpond.operators.operator import BROADCAST, Binding, Context, Inputs, Shape, StepResult, Wake, by_key
from millpond.operators.traits import EvolvesState, FiresByTime, ShowsFailedRows
from millpond.process.bytecode_facts import columns_read
from millpond.process.declaration import Declared, ProcessFacts
from millpond.process.epoch import Epoch
from millpond.process.outputs import OUTPUT, side_column
from millpond.process.spec import StateSpec, sweep_wheel
from millpond.process.timers import NEVER, due_tables, set_table, wakes, wheel
from millpond.state.tables.stored_schema import stored
from millpond.state.tables.table_spec import TableSpec


@dataclass(frozen=True)
class KeyedProcess(Declared, ShowsFailedRows, FiresByTime, EvolvesState):
    canonical: ClassVar[bool] = True

    # -- before any row ------------------------------------------------------------

    def meaning(self) -> Any:
        """What must stay the same for the state to remain valid: code, states and outputs may change."""
        return (self.key, self.latest)

    def bind(self, step: str, inputs: tuple[Shape, ...]) -> Binding:
        shape, *others = inputs
        self._check(step, shape, others)
        key = pa.schema([stored(shape.schema).field(name) for name in self.key])
        tables: list[TableSpec] = []
        woken: list[Wake] = []
        for state in self.states:
            self._check_ttl(step, state, shape)
            tables.append(state.table(step, key))
            sweeps = state.sweeps(step, key)
            tables += sweeps
            if state.ttl is not None and state.ttl.clock == "processing":
                woken += [Wake(t.name, t.bucket_width or 1, 1) for t in sweeps]
        if self.code.has("on_timer"):
            tables += [set_table(step, key), *due_tables(step, key)]
            woken += wakes(step)
        aware = (
            shape.time is not None and getattr(shape.schema.field(shape.time).type, "tz", None) is not None
        )
        control = tuple(others[0].schema.names) if others else ()
        facts = ProcessFacts(tuple(shape.schema.names), control, shape.time, shape.watermark, aware)
        output = self.given(key)
        check_names(output.names, step)
        placements = (by_key(*self.key), *(BROADCAST for _ in others))
        if not self.latest:
            return Binding(
                Shape(output, append_only=True), placements, tuple(tables), wakes=tuple(woken), extra=facts
            )
        out = TableSpec(f"{step}/out", output, self.key)
        return Binding(
            Shape(output, append_only=False, key=self.key),
            placements,
            (*tables, out),
            view=out.name,
            placed_by=self.key,
            wakes=tuple(woken),
            extra=facts,
        )

    def given(self, key: pa.Schema) -> pa.Schema:
        """All columns of all outputs; with one row per key, the key columns come first."""
        if self.latest:
            return pa.schema([*key, *(f for f in self.schema if f.name not in self.key)])
        if not self.sides:
            return self.schema
        fields = [pa.field(OUTPUT, pa.string())]
        for side, schema in self.schemas.items():
            fields += [f.with_name(side_column(side, f.name)) for f in schema]
        return pa.schema(fields)

    def _check(self, step: str, shape: Shape, others: Sequence[Shape]) -> None:
        for name in self.key:
            if name not in shape.schema.names:
                raise InvalidError(
                    f"there is no column {name!r}",
                    detail=f"columns are {', '.join(shape.schema.names)}",
                    step=step,
                )
        if not shape.append_only:
            raise InvalidError(
                "process needs append-only input",
                detail="rows of this stream can be retracted, and user code cannot undo what it did",
                hint="put process before aggregates, joins and tables, or use apply() on all rows of a key",
                step=step,
            )
        if others and not self.code.has("on_control"):
            raise InvalidError(
                "a control stream needs an on_control method", hint="write the step as a class", step=step
            )
        if others and not others[0].append_only and not self.code.has("on_control_removed"):
            raise InvalidError(
                "rows of the control stream can be retracted",
                detail="it is a table, or made of one",
                hint="define on_control_removed(self, row, ctx) as well: an update removes the old row first",
                step=step,
            )
        if not others and any(s.kind == "broadcast" for s in self.states):
            raise InvalidError(
                "a broadcast state needs a control stream", hint="pass control=stream to process()", step=step
            )
        if self.latest and self.sides:
            raise InvalidError(
                "latest=True cannot be combined with side outputs",
                hint="leave out one of them",
                step=step,
            )
        names = [s.name for s in self.states]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise InvalidError(
                f"state {twice!r} is declared twice", hint="give one of them another name", step=step
            )

    def _check_ttl(self, step: str, state: StateSpec, shape: Shape) -> None:
        if state.ttl is not None and state.ttl.clock == "event" and shape.watermark is None:
            raise InvalidError(
                f"state {state.name!r} has a time to live in event time, but the stream has no event time",
                hint='pass event_time= to pond.stream(), or clock="processing" to the state',
                step=step,
            )

    def requires(self, binding: Binding, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        facts: ProcessFacts = binding.extra
        columns_needed = [frozenset([*facts.columns, ORIGIN])]
        if len(binding.placements) > 1:
            columns_needed.append(frozenset([*facts.control, ORIGIN]))
        return tuple(columns_needed)

    def reads(self, binding: Binding) -> frozenset[str] | None:
        facts: ProcessFacts = binding.extra
        read = columns_read(self.code, facts.columns)
        if read is None:
            return None
        return (read | {*self.key} | ({facts.time} if facts.time is not None else set())) or None

    def due(
        self, binding: Binding, earliest: Mapping[str, int], watermarks: Mapping[str, int], now_us: int
    ) -> bool:
        facts: ProcessFacts = binding.extra
        event = watermarks.get(facts.watermark, NEVER) if facts.watermark is not None else NEVER
        bounds = {"event": event, "processing": now_us}
        step = binding.tables[0].name.rpartition("/")[0] if binding.tables else ""
        if any(wheel(step, clock).is_due(earliest, bound) for clock, bound in bounds.items()):
            return True
        return any(
            sweep_wheel(step, state.name).is_due(earliest, bounds[state.ttl.clock])
            for state in self.states
            if state.ttl is not None
        )

    # -- one epoch -------------------------------------------------------------------

    def apply(self, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        return Epoch(self, ctx, binding).run(inputs[0], inputs[1] if len(inputs) > 1 else None)
