"""From a plan and the head of a pond to a runner that may take it over.

Law: nothing is written here but the plan itself, under a name of its content; owning the pond is the runner's
first commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from millpond.flow.builder import Builder
from millpond.plan.backfill import backfill_plan
from millpond.plan.change import restored
from millpond.plan.codec import with_code
from millpond.plan.compatible import (
    check_compatible,
    fed_by_new_constants,
    fed_by_what_was_read,
    with_expiry_of,
)
from millpond.plan.dangers import reaches_out, unpickles
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.plan.replacing import Asked, replacing_change, steps_to_replace, with_sql
from millpond.plan.user_codes import with_operators
from millpond.plan.versions import versioned
from millpond.pond.parts import Parts
from millpond.pond.watch import OnEpoch
from millpond.settings import Settings
from millpond.state.manifest import Manifest
from millpond.state.retention import Retention


@dataclass(frozen=True)
class Plans:
    """How a pond is taken over: by its own program, and then on to another one if that differs."""

    plan: Plan  # to take the pond over with
    wanted: Plan  # to go on to, once its new steps are filled
    ids: Mapping[str, str] = field(default_factory=dict)  # of steps that the pond knows under other ids
    from_now: frozenset[str] = frozenset()  # new steps that get no rows of the past


def plans_to_run(parts: Parts, head: Manifest | None, rewritten: Sequence[str] = ()) -> Plans:
    """What this process defined, if the pond can go on with it, or else the pond's own; with its code.

    Code and state of a pond that is neither ours nor trusted are refused here, before anything runs.
    """
    found = _plans(parts, head, rewritten)
    plan = with_code(found.plan)
    wanted = plan if found.wanted is found.plan else with_code(found.wanted)
    trust = parts.worker.trust
    if head is not None and unpickles(plan):
        trust.require_owner("state is kept as pickles")
    if not parts.builder.plan.nodes and reaches_out(plan):
        trust.require_owner("sources and sinks are defined")
    return replace(found, plan=plan, wanted=wanted)


def _plans(parts: Parts, head: Manifest | None, rewritten: Sequence[str]) -> Plans:
    plan = parts.builder.plan
    if not plan.nodes and (head is not None or not plan.objects):
        if head is None:
            raise InvalidError("there is nothing to run", hint="define a stream and a view first")
        stored = parts.reader.plan_of(head)
        return Plans(stored, stored)
    if head is None or head.catalog is None:
        return Plans(plan, plan)
    old = with_operators(parts.reader.plan_of(head))
    asked = asked_of(parts.builder, old)
    found = versioned(old, with_expiry_of(old, plan), steps_to_replace(plan, asked))
    plan, ids = with_sql(old, found.plan), found.moved
    plan = with_expiry_of(old, plan)
    if rewritten:
        plan = check_compatible(old, plan, set(head.positions), rewritten=rewritten)
        return Plans(plan, plan, ids)
    change = replacing_change(old, plan, asked)
    if not change.new and not change.gone:
        return Plans(change.plan, change.plan, ids)
    behind = fed_by_what_was_read(old, plan, head.positions) or fed_by_new_constants(old, plan)
    if not change.gone and not behind:
        plan = check_compatible(old, plan, set(head.positions))
        return Plans(plan, plan, ids)
    wanted = change.plan
    backfill_plan(old, wanted, change.new, head.positions, from_now=asked.from_now)
    sinks = {name: sink for name, sink in old.sinks.items() if name in wanted.sinks}
    from_now = change.new if asked.from_now else frozenset()
    return Plans(restored(replace(old, sinks=sinks), wanted), wanted, ids, from_now)


def asked_of(builder: Builder, old: Plan) -> Asked:
    """What the program says about views that changed since the pond last ran."""
    names = builder.plan.views if builder.replaces_all is not None else builder.replaced
    backfills = [*builder.replaced.values(), *([builder.replaces_all] if names else [])]
    dropped = [name for name in builder.dropped if name in old.views and name not in builder.plan.views]
    return Asked(frozenset(names), frozenset(dropped), from_now=False in backfills)


def new_runner(
    parts: Parts,
    engine: Engine,
    head: Manifest | None,
    plans: Plans,
    *,
    rewrite: Rewrite | None,
    on_commit: OnEpoch,
    on_progress: OnProgress,
    stopped: Callable[[], bool],
) -> Runner:
    plan, wanted = plans.plan, plans.wanted
    settings = parts.settings
    current = None if head is None else head.catalog
    program = program_of(save_plan(parts.worker, plan, current), plan)
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
        late=program.late,
        late_needed=program.late_needed,
    )
    changer = Changer(
        parts.worker,
        engine,
        bytes_max=settings.epoch_bytes_max,
        checks=settings.checks,
        options=parts.options,
        on_progress=on_progress,
        stopped=stopped,
        from_now=plans.from_now,
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
        errors=Retention(settings.error_rows_max, settings.error_keep_ms * 1000),
        late=Retention(settings.late_rows_max, settings.late_keep_ms * 1000),
    )
