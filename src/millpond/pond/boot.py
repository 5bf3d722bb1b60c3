"""From a plan and the head of a pond to a runner that may take it over.

Law: nothing is written here but the plan itself, under a name of its content; owning the pond is the runner's
first commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from millpond.control.admission import Bounds
from millpond.engine.backfill import OnProgress
from millpond.engine.changer import Changer
from millpond.engine.coordinator import Coordinator, Policy
from millpond.engine.engine import Engine
from millpond.engine.programs import program_of, save_plan
from millpond.engine.protocol import Rewrite
from millpond.engine.runner import Runner
from millpond.engine.shell import Shell
from millpond.errors import InvalidError
from millpond.plan.backfill import backfill_plan
from millpond.plan.change import restored
from millpond.plan.compatible import check_compatible, fed_by_new_constants, fed_by_what_was_read
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.pond.parts import Parts
from millpond.pond.watch import OnEpoch
from millpond.settings import Settings
from millpond.state.manifest import Manifest


def plans_to_run(parts: Parts, head: Manifest | None, rewritten: Sequence[str] = ()) -> tuple[Plan, Plan]:
    """The plan to take the pond over with, and the one to go on to once its new steps are filled.

    They are what this process defined, if the pond can go on with it, or else the pond's own.
    """
    plan = parts.builder.plan
    if not plan.nodes and (head is not None or not plan.objects):
        if head is None:
            raise InvalidError("there is nothing to run", hint="define a stream and a view first")
        stored = parts.reader.plan_of(head)
        return stored, stored
    if head is None or head.catalog is None:
        return plan, plan
    old = parts.reader.plan_of(head)
    behind = fed_by_what_was_read(old, plan, head.positions) or fed_by_new_constants(old, plan)
    if rewritten or not behind:
        plan = check_compatible(old, plan, set(head.positions), rewritten=rewritten)
        return plan, plan
    wanted = check_compatible(old, plan, set())
    backfill_plan(old, wanted, wanted.nodes.keys() - old.nodes.keys(), head.positions)
    sinks = {name: sink for name, sink in old.sinks.items() if name in wanted.sinks}
    return restored(replace(old, sinks=sinks), wanted), wanted


def new_runner(
    parts: Parts,
    engine: Engine,
    head: Manifest | None,
    plans: tuple[Plan, Plan],
    *,
    rewrite: Rewrite | None,
    on_commit: OnEpoch,
    on_progress: OnProgress,
    stopped: Callable[[], bool],
) -> Runner:
    plan, wanted = plans
    settings = parts.settings
    program = program_of(save_plan(parts.worker, plan), plan)
    coordinator = Coordinator(
        pond=uuid.uuid4().hex,
        catalog=program.catalog,
        sources=program.sources,
        sinks=program.sinks,
        parallelism=parts.parallelism or (None if head else engine.default_parallelism),
        policy=_policy(settings),
        ids=lambda: uuid.uuid4().hex,
        now_us=parts.clock.now_us(),
        wakes=program.wakes,
        tables=program.tables,
        rewrite=rewrite,
        change=None if wanted is plan else save_plan(parts.worker, wanted),
        based_on=None if head is None else head.catalog,
        constant=program.constant,
    )
    changer = Changer(
        parts.worker,
        engine,
        bytes_max=settings.epoch_bytes_max,
        checks=settings.checks,
        options=parts.options,
        on_progress=on_progress,
        stopped=stopped,
    )
    shell = Shell(
        parts.worker,
        engine,
        plan,
        cut(plan),
        program.catalog,
        parts.clock,
        checks=settings.checks,
        options=parts.options,
        changer=changer,
    )
    return Runner(coordinator, shell, on_commit=on_commit)


def _policy(settings: Settings) -> Policy:
    return Policy(
        bounds=Bounds(
            rows_max=settings.epoch_rows_max,
            bytes_max=settings.epoch_bytes_max,
            target_ms=settings.target_ms,
            catch_up_ms=settings.catch_up_ms,
        ),
        retain_epochs=settings.retain_epochs,
        fan_in=settings.fan_in,
        unit_bytes=settings.compaction_unit_bytes,
        compact=settings.compact,
        collect_every=settings.collect_every,
    )
