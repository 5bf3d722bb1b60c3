"""The control stream of a process step: every task processes all of it before the rows of any key.

Each task applies the changes of broadcast states itself.  Rows and errors that
result from the control stream are reported by one task only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.delta import ORIGIN, WEIGHT
from millpond.delta import weights as weights_of
from millpond.kernels.expression_kernel import error_rows, visible
from millpond.kernels.python_rows import python_rows
from millpond.kernels.user_code import error_text, is_row_fault
from millpond.kernels.watchdog import limited
from millpond.process import row_order
from millpond.process.broadcast_handle import BroadcastHandle
from millpond.process.context import ProcessContext
from millpond.process.declaration import Declared
from millpond.process.outputs import MAIN, Outputs, check_fits


@dataclass
class _Calls:
    calls: int = 0


def run_control(
    control: pa.Table,
    declared: Declared,
    broadcasts: Mapping[str, BroadcastHandle],
    ctx: ProcessContext,
    outputs: Outputs,
    step: str,
) -> pa.Table | None:
    """Call user code for every row, retractions first; returns the rows on which it failed, as error rows."""
    w = weights_of(control)
    shown = visible(control.drop_columns([n for n in (ORIGIN,) if n in control.column_names]))
    rank = row_order.arrival_order(control.drop_columns([n for n in (WEIGHT,) if n in control.column_names]))
    order = np.lexsort((rank, w > 0))
    rows = shown.take(pa.array(order))
    keyed = {state.name: _NoKey(state.name) for state in declared.keyed_states}
    on = declared.code.bound({**keyed, **broadcasts})
    failed: dict[int, str] = {}
    counts = _Calls()
    for handle in broadcasts.values():
        handle.listen(True)
    with limited(counts, declared.timeout_us, f"step {step!r}"):
        for index, (row, weight) in enumerate(zip(python_rows(rows), w[order].tolist(), strict=True)):
            method = "on_control" if weight > 0 else "on_control_removed"
            saved = {name: handle.save() for name, handle in broadcasts.items()}
            counts.calls += 1
            try:
                for item in _rows_given(on[method](row, ctx)):
                    check_fits(item, declared.schema)
                    outputs[MAIN].items.append(item)
            except BaseException as error:
                if not is_row_fault(error):
                    raise
                failed[index] = error_text(error, declared.code.where(method))
                for name, handle in broadcasts.items():
                    handle.restore(saved[name])
    for handle in broadcasts.values():
        handle.listen(False)
    if not failed:
        return None
    bad = sorted(failed)
    return error_rows(rows.take(pa.array(bad)), [failed[n] for n in bad])


def _rows_given(returned: Any) -> list[Any]:
    if returned is None:
        return []
    return list(returned) if isinstance(returned, list) or hasattr(returned, "send") else [returned]


class _NoKey:
    """A keyed state in `on_control`, where there is no current key: any use raises."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, attribute: str) -> Any:
        raise TypeError(f"state {self._name!r} belongs to a key, and on_control has none")

    def __setattr__(self, attribute: str, value: Any) -> None:
        raise TypeError(f"state {self._name!r} belongs to a key, and on_control has none")
