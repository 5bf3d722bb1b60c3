"""What steps of a level ask of the same rows, asked once for all of them.

Law: each step gets what it would get by itself.  Which steps ask together follows from the plan (`together`);
the rows are those of one task, or of one piece of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from millpond.delta import without_origin
from millpond.engine.in_order import InOrder, true_in
from millpond.engine.placing import WHOLE_ROWS
from millpond.engine.together import Together
from millpond.operators.alike import Picked
from millpond.operators.kernel import masks, project_each
from millpond.plan.levels import Levels
from millpond.plan.nodes import Node, Plan


class SharedWork:
    """The answers for one task; rows that are gone are forgotten."""

    def __init__(self, plan: Plan, levels: Levels, together: Together) -> None:
        self.plan = plan
        self.levels = levels
        self.together = together
        self._masks: dict[str, dict[str, pa.ChunkedArray]] = {}  # by source, then by filter
        self._projections: dict[str, dict[str, pa.Table]] = {}  # by source, then by step
        self._ordered: dict[tuple[str, tuple[str, ...]], InOrder | None] = {}  # by source and key

    def forget(self) -> None:
        """Other rows come from the same steps."""
        self._masks.clear()
        self._projections.clear()
        self._ordered.clear()

    def in_order(self, node: Node, outputs: Mapping[str, pa.Table]) -> InOrder | None:
        """The order in which the reader of a filter groups its rows, found once for all such filters."""
        key = self.together.in_order.keys.get(node.step)
        if key is None:
            return None
        place = (node.inputs[0], key)
        if place not in self._ordered:
            self._ordered[place] = InOrder.of(outputs[node.inputs[0]], key)
        return self._ordered[place]

    def picked(self, node: Node, outputs: Mapping[str, pa.Table]) -> Picked | None:
        """What a filter keeps, by the places of its rows; None where it must be asked by itself."""
        mask = self.mask(node, outputs)
        rows = outputs[node.inputs[0]]
        if mask is None:
            return None
        names = {name: name for name in rows.column_names}
        in_order = self.in_order(node, outputs)
        if in_order is None:
            return Picked(rows, np.flatnonzero(true_in(mask)), names, None)
        places, hashes = in_order.places(mask)
        return Picked(rows, places, names, hashes)

    def mask(self, node: Node, outputs: Mapping[str, pa.Table]) -> pa.ChunkedArray | None:
        """Where a filter is true, asked together with all other filters of the same rows."""
        source = node.inputs[0]
        steps = self.together.filters.get(source, ())
        if node.step not in steps:
            return None
        if source not in self._masks:
            found = None
            if source in outputs:
                found = masks(outputs[source], [self.plan.nodes[s].binding.extra for s in steps])
            self._masks[source] = {} if found is None else dict(zip(steps, found, strict=True))
        return self._masks[source].get(node.step)

    def projected(self, node: Node, outputs: Mapping[str, pa.Table]) -> pa.Table | None:
        """What a projection computes of few rows, asked together with all others of the same rows."""
        source = node.inputs[0]
        steps = self.together.projections.get(source, ())
        if node.step not in steps:
            return None
        if source not in self._projections:
            found = None
            rows = outputs.get(source)
            if rows is not None and rows.num_rows <= WHOLE_ROWS:
                read = [self.levels.inputs[s, 0].intersection(rows.column_names) for s in steps]
                bounds = [
                    [(name, e) for name, e in self.plan.nodes[s].binding.extra if given.issuperset(e.needs)]
                    for s, given in zip(steps, read, strict=True)
                ]
                found = project_each(without_origin(rows), bounds)
            self._projections[source] = {} if found is None else dict(zip(steps, found, strict=True))
        return self._projections[source].get(node.step)
