"""Creates the runner that takes a pond over, from a plan and the head of the pond.

Law: only the plan is written here, under the hash of its content; the runner owns the pond from its first
commit on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millpond.control.admission import Bounds
from millpond.engine.change.backfill import OnProgress
from millpond.engine.change.changer import Changer
from millpond.engine.change.programs import program_of, save_plan
from millpond.engine.coordinator.coordinator import Coordinator
from millpond.engine.coordinator.policy import Policy
from millpond.engine.coordinator.protocol import StateRewrite
from millpond.engine.coordinator.runner import Runner
from millpond.engine.coordinator.shell import Shell
from millpond.engine.coordinator.takeover import NO_POND
from millpond.engine.engine import Engine, RemoteEngine
from millpond.errors import InvalidError
from millpond.flow.builder import Builder
from millpond.plan.backfill import backfill_plan
from millpond.plan.change import restored
from millpond.plan.codec import with_code
from millpond.plan.compatibility import (
    check_compatible,
    fed_by_new_constants,
    fed_by_what_was_read,
    with_expiry_of,
)
from millpond.plan.levels import cut
from millpond.plan.nodes import Plan
from millpond.plan.replaced_views import ReplaceRequest, replacing_change, steps_to_replace, with_sql
from millpond.plan.side_effects import reaches_out, unpickles
from millpond.plan.step_versions import versioned
from millpond.plan.user_code import with_operators
from millpond.pond.components import Components
from millpond.pond.listeners import OnEpoch
from millpond.settings import Settings
from millpond.state.manifest.manifest import Manifest
from millpond.state.retention import Retention


@dataclass(frozen=True)
class Plans:
    """The plans of a takeover: that of the pond, and the one to change to if this process defines another."""

    plan: Plan  # the plan of the takeover
    wanted: Plan  # the plan to change to, once its new steps are backfilled
    ids: Mapping[str, str] = field(default_factory=dict)  # new ids of steps that have other ids in the pond
    from_now: frozenset[str] = frozenset()  # new steps that are not backfilled


def plans_to_run(components: Components, head: Manifest | None, rewritten: Sequence[str] = ()) -> Plans:
    """The plan that this process defined, if the pond can continue with it, or else the pond's own.

    Code and state of a pond that is neither ours nor trusted are refused here, before anything runs.
    """
    plans = _plans(components, head, rewritten)
    plan = with_code(plans.plan)
    wanted = plan if plans.wanted is plans.plan else with_code(plans.wanted)
    trust = components.worker.trust
    if head is not None and unpickles(plan):
        trust.require_owner("state is kept as pickles")
    if not components.builder.plan.nodes and reaches_out(plan):
        trust.require_owner("sources and sinks are defined")
    return replace(plans, plan=plan, wanted=wanted)


def _plans(components: Components, head: Manifest | None, rewritten: Sequence[str]) -> Plans:
    plan = components.builder.plan
    if not plan.nodes and (head is not None or not plan.objects):
        if head is None:
            raise InvalidError("there is nothing to run", hint="define a stream and a view first")
        stored = components.reader.plan_of(head)
        return Plans(stored, stored)
    if head is None or head.catalog is None:
        return Plans(plan, plan)
    old = with_operators(components.reader.plan_of(head))
    asked = asked_of(components.builder, old)
    continued = versioned(old, with_expiry_of(old, plan), steps_to_replace(plan, asked))
    plan, ids = with_sql(old, continued.plan), continued.moved
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


def asked_of(builder: Builder, old: Plan) -> ReplaceRequest:
    """The views that the program replaces or drops, among those that changed since the pond last ran."""
    names = builder.plan.views if builder.replaces_all is not None else builder.replaced
    backfills = [*builder.replaced.values(), *([builder.replaces_all] if names else [])]
    dropped = [name for name in builder.dropped if name in old.views and name not in builder.plan.views]
    return ReplaceRequest(frozenset(names), frozenset(dropped), from_now=False in backfills)


def new_runner(
    components: Components,
    engine: Engine,
    head: Manifest | None,
    plans: Plans,
    *,
    rewrite: StateRewrite | None,
    on_commit: OnEpoch,
    on_progress: OnProgress,
    stopped: Callable[[], bool],
) -> Runner:
    plan, wanted = plans.plan, plans.wanted
    settings = components.settings
    options: Mapping[str, Any] = components.options
    if isinstance(engine, RemoteEngine):
        options = engine.shared(components.store.uri, options)
    current = None if head is None else head.catalog
    program = program_of(save_plan(components.worker, plan, current), plan)
    coordinator = Coordinator(
        pond=uuid.uuid4().hex,
        program=program,
        parallelism=components.parallelism,
        cores=engine.default_parallelism,
        policy=_policy(settings),
        ids=lambda: uuid.uuid4().hex,
        now_us=components.clock.now_us(),
        rewrite=rewrite,
        change=None if wanted is plan else save_plan(components.worker, wanted),
        based_on=NO_POND if head is None else head.catalog,
    )
    changer = Changer(
        components.worker,
        engine,
        bytes_max=settings.epoch_bytes_max,
        checks=settings.checks,
        vectorize_user_code=settings.vectorize_user_code,
        options=options,
        on_progress=on_progress,
        stopped=stopped,
        from_now=plans.from_now,
    )
    shell = Shell(
        components.worker,
        engine,
        plan,
        cut(plan),
        program.catalog,
        components.clock,
        checks=settings.checks,
        vectorize_user_code=settings.vectorize_user_code,
        options=options,
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
