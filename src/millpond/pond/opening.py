"""Opens a pond: checks the arguments of `millpond.open` and `millpond.restore`, and opens the stores.

Law: nothing runs and no Spark starts here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from millpond.arguments.call_errors import need_callable
from millpond.clock import Clock, SystemClock
from millpond.engine.coordinator.commands import require_parallelism
from millpond.errors import InvalidError
from millpond.pond.listeners import OnEpoch
from millpond.pond.location import restore_stores
from millpond.serve.backup import OnCopy
from millpond.serve.restore import Restored
from millpond.serve.restore import restore as restore_from_store
from millpond.settings import Settings, make_settings
from millpond.state.store.location import store_options as options_of
from millpond.state.store.location import uri_of
from millpond.state.store.store import open_store

P = TypeVar("P")


def open_pond(
    make: Callable[..., P],
    path: str | os.PathLike[str],
    *,
    engine: str,
    spark: Any,
    parallelism: int | None,
    clock: Clock | None,
    on_epoch: OnEpoch | None,
    standby: bool,
    take_over: bool,
    trust: bool,
    store_options: Mapping[str, Any] | None,
    master: str | None,
    spark_conf: Mapping[str, str] | None,
    settings: Mapping[str, Any],
) -> P:
    """The pond at a path; `make` is its class."""
    if engine not in ("spark", "inline"):
        raise InvalidError(f"no engine named {engine!r}", hint='"spark" or "inline"')
    if spark is not None and (master is not None or spark_conf):
        raise InvalidError(
            "a session was passed, and master or spark_conf for another one",
            hint="leave one of them out; the settings of a session are those with which it was started",
        )
    if parallelism is not None:
        require_parallelism(parallelism)
    if on_epoch is not None:
        need_callable("on_epoch", on_epoch)
    if clock is not None and not hasattr(clock, "now_us"):
        raise InvalidError(
            "clock must be a clock", detail=f"got {clock!r}", hint="millpond.clock.ManualClock()"
        )
    if standby and take_over:
        raise InvalidError(
            "standby and take_over exclude each other",
            hint="standby waits for the holder of the pond, take_over does not",
        )
    checked_settings = make_settings(**settings)
    uri = uri_of(path)
    options = options_of(uri, checked_settings, store_options or {})
    return make(
        open_store(uri, **options),
        engine=engine,
        spark=spark,
        parallelism=parallelism,
        settings=checked_settings,
        clock=clock or SystemClock(),
        on_epoch=on_epoch,
        standby=standby,
        take_over=take_over,
        trust=trust,
        store_options=options,
        session_options={"master": master, "extra": dict(spark_conf or {})},
    )


def restore_pond(
    backup: str | os.PathLike[str],
    pond: str | os.PathLike[str],
    epoch: int | None,
    *,
    new_id: bool,
    on_progress: OnCopy | None,
    store_options: Mapping[str, Any] | None,
    backup_options: Mapping[str, Any] | None,
) -> Restored:
    """Create a pond from a backup."""
    source, target = restore_stores(backup, pond, Settings(), store_options or {}, backup_options)
    return restore_from_store(source, target, epoch, new_id=new_id, on_progress=on_progress)
