"""`millpond fork`: creates a new pond from an epoch of another one."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from millpond.cli.arguments import (
    TEXT,
    EpochOption,
    OutputOption,
    PondArgument,
    TrustOption,
    open_reader,
    open_store_of,
    parse_epoch,
)
from millpond.cli.output import MessagePart
from millpond.clock import SystemClock
from millpond.plan.side_effects import require_for_fork
from millpond.state.manifest.fork import fork as make_fork


def fork(
    pond: PondArgument,
    new_path: Annotated[
        str, typer.Argument(metavar="NEWPATH", help="Path or URI of the new pond.", show_default=False)
    ],
    epoch: EpochOption = None,
    trust: TrustOption = False,
    output: OutputOption = TEXT,
) -> None:
    """Create a new pond with the state of this one, without copying it; its sinks are detached."""
    reader = open_reader(pond, trust)
    child = open_store_of(new_path)
    with reader.pinned(parse_epoch(epoch)) as snapshot:
        require_for_fork(reader.plan_of(snapshot.manifest), reader.worker.trust)
        first = make_fork(
            reader.store,
            child,
            snapshot.epoch,
            pond=uuid.uuid4().hex,
            now_us=SystemClock().now_us(),
            sinks=reader.plan_of(snapshot.manifest).sinks,
        )
    output.write(
        MessagePart(
            f"{new_path} is a fork of {pond} at epoch {snapshot.epoch}; no data was copied",
            {
                "pond": first.pond,
                "uri": child.uri,
                "parent": reader.store.uri,
                "parent_epoch": snapshot.epoch,
                "detached": sorted(first.detached),
            },
        )
    )
