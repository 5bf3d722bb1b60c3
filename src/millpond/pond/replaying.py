"""Replays an epoch as `Pond.replay` does: with checked arguments and the code that this process defined."""

from __future__ import annotations

from typing import Any

from millpond.arguments.call_errors import need_callable, need_epoch
from millpond.engine.traced_plan import OnError, OnInput
from millpond.plan.nodes import Plan
from millpond.pond.components import Components
from millpond.pond.program import need_plan
from millpond.serve.replay import Replay, replay


def replay_epoch(
    components: Components,
    epoch: Any,
    *,
    step: str | None,
    on_input: OnInput | None,
    on_error: OnError | None,
    plan: Plan | None,
) -> Replay:
    if plan is not None:
        need_plan("replay", plan)
    for name, function in (("on_input", on_input), ("on_error", on_error)):
        if function is not None:
            need_callable(name, function)
    return replay(
        components.reader,
        need_epoch("replay", epoch),
        plan=plan,
        live=components.builder.plan,
        step=step,
        on_input=on_input,
        on_error=on_error,
    )
