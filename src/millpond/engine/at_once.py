"""Steps that are alike, in a task that is all there is of its epoch: computed at once, over rows uncopied.

Law: every step gets the state that it would get alone (law 3; with `checks` each is computed alone as well,
and compared).  Filters and projections before such steps give places of rows (`Picked`) instead of rows;
these do not leave the process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.engine import checks
from millpond.engine.blame import blamed
from millpond.engine.placing import concat, prepared, whole
from millpond.operators import alike
from millpond.operators.alike import Picked
from millpond.operators.map import Map
from millpond.operators.operator import Result
from millpond.plan.levels import Edge
from millpond.plan.nodes import Node

if TYPE_CHECKING:
    from millpond.engine.task_run import TaskRun

ROWS_MAX = 50_000  # of more, what a step costs before its first row is little


class AtOnce:
    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._picked: dict[str, Picked] = {}  # by step: what stands for its rows

    def pick(self, node: Node, outputs: Mapping[str, pa.Table]) -> bool:
        """Note which rows a filter keeps, or what a projection calls them, without a copy; False: not so."""
        (source,) = node.inputs
        if isinstance(node.operator, Map):
            before = self._picked.get(source)
            if before is None:
                return source not in outputs
            names = {name: before.names.get(e.column) for name, e in node.binding.extra}
            held = {name: column for name, column in names.items() if column is not None}
            self._picked[node.step] = replace(before, names=held)
            return True
        if source not in outputs:
            return True
        with blamed(node.step, self._run.spec.epoch):
            found = self._run.shared.picked(node, outputs)
        if found is not None:
            self._picked[node.step] = found
        return found is not None

    def sent(self) -> Iterator[tuple[Edge, Picked]]:
        """What goes over which edge as places of rows."""
        for edge in self._run.levels.edges:
            rows = self._picked.get(edge.producer)
            if rows is not None and rows.num_rows and edge.to_level < len(self._run.spec.parallelism):
                yield edge, rows

    def apply(self, steps: Sequence[str], arrived: Mapping[tuple[str, int], list[pa.Table]]) -> None:
        """Steps that are alike, at once where that goes; their rows come as the sender had them."""
        run = self._run
        started = time.perf_counter_ns()
        live = [run.plan.nodes[step] for step in steps if (step, 0) in arrived]
        inputs = [_as_it_came(arrived[node.step, 0]) for node in live]
        stack = None
        if len(live) > 1 and sum(rows.num_rows for rows in inputs) <= ROWS_MAX:
            with blamed(live[0].step, run.spec.epoch):
                members = [m for n in live if (m := alike.Member.of(n.operator, n.binding)) is not None]
                runs = [run.listing.runs(node.binding.tables[0].name) for node in live]
                stack = alike.apply(members, inputs, runs, run.worker.open_file)
        if stack is not None:
            run.writer.add_stack(stack.members, stack.columns)
        if stack is None or run.spec.checks:
            results = [self._alone(node, rows) for node, rows in zip(live, inputs, strict=True)]
            if stack is None:
                for node, result in zip(live, results, strict=True):
                    run.keep(node, result)
            else:
                for node, result, rows in zip(live, results, stack.each(), strict=True):
                    checks.check_alike(node, result, rows, run.context(node))
        for node in live:
            run.step_us[node.step] = (time.perf_counter_ns() - started) // 1000 // len(live)

    def _alone(self, node: Node, rows: pa.Table | Picked) -> Result:
        """What a step that has others like it makes of its rows by itself."""
        with blamed(node.step, self._run.spec.epoch):
            given = rows.table() if isinstance(rows, Picked) else rows
            return self._run.result(node, {}, {(node.step, 0): [prepared(given, node, 0)]})


def _as_it_came(found: Sequence[pa.Table | Picked]) -> pa.Table | Picked:
    return found[0] if isinstance(found[0], Picked) else whole(concat([*found]))
