"""Makes a plan report the inputs and outputs of its steps and the errors of user code; for replays.

The results stay the same: a watched operator is the operator itself, with a
callback before and after its step.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import pyarrow as pa

from millpond.delta import without_origin
from millpond.operators.operator import Binding, Context, Inputs, Operator, StepResult
from millpond.operators.scan import Scan
from millpond.plan.nodes import Plan
from millpond.plan.user_code import OURS, user_codes
from millpond.process.keyed_process import KeyedProcess

OnInput = Callable[[str, Inputs], None]
OnOutput = Callable[[str, pa.Table], None]
OnError = Callable[[BaseException], None]


def watched(plan: Plan, on_input: OnInput, on_output: OnOutput) -> Plan:
    """The plan, with every step reporting its inputs before it runs, and its output."""
    nodes = {}
    for step, node in plan.nodes.items():
        operator = node.operator
        if isinstance(operator, Scan):
            source = _TracedSource(operator.source, functools.partial(on_output, step))
            nodes[step] = replace(node, operator=replace(operator, source=source))
        else:
            nodes[step] = replace(node, operator=_traced(operator, on_input, on_output))
    return replace(plan, nodes=nodes)


def _traced(operator: Operator, on_input: OnInput, on_output: OnOutput) -> Operator:
    """A copy of the operator that reports; its class is a subclass, so type checks and fields still work."""
    kind: Any = type(operator)

    def apply(self: Any, ctx: Context, binding: Binding, inputs: Inputs) -> StepResult:
        ctx.output_is_read = True  # also for the last step, as the replay reads its output
        on_input(ctx.step, tuple(None if delta is None else without_origin(delta) for delta in inputs))
        result: StepResult = kind.apply(self, ctx, binding, inputs)
        if result.out is not None:
            on_output(ctx.step, without_origin(result.out))
        return result

    made = copy.copy(operator)
    if isinstance(made, KeyedProcess):  # the user may pause at a breakpoint
        object.__setattr__(made, "timeout_us", None)
    object.__setattr__(made, "__class__", type(kind.__name__, (kind,), {"apply": apply, "__slots__": ()}))
    return made


class _TracedSource:
    """A source that can only be read, and reports its rows."""

    def __init__(self, source: Any, tell: Callable[[pa.Table], None]) -> None:
        self._source = source
        self._tell = tell

        self.schema = source.schema
        self.append_only = source.append_only

    def read(self, split: Any, columns: Sequence[str]) -> Iterator[pa.Table]:
        for table in self._source.read(split, columns):
            if "_error" not in table.column_names:
                self._tell(table)
            yield table


# -- errors of user code ----------------------------------------------------------


@contextlib.contextmanager
def traced_errors(plan: Plan, on_error: OnError | None) -> Iterator[None]:
    """Call `on_error` when an exception leaves a user's function inside this context.

    Also where the step continues with an error row; the exception then has the user's frames.
    """
    codes = user_codes(plan)
    if on_error is None or not codes:
        yield
        return

    def on_call(frame: FrameType, event: str, arg: Any) -> None:
        caller = frame.f_back
        if event == "call" and frame.f_code in codes and caller is not None and _is_ours(caller):
            # An exception that leaves the user's frame is next traced in its caller.
            caller.f_trace_lines = False
            caller.f_trace = in_caller

    def in_caller(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "exception":
            _, error, trace = arg
            inner = None if trace is None else trace.tb_next
            if isinstance(error, Exception) and inner is not None and inner.tb_frame.f_code in codes:
                on_error(error.with_traceback(trace))
                sys.settrace(on_call)  # a debugger replaces the trace function and leaves none behind
        return in_caller

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(before)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(OURS)
