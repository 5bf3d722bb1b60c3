"""How a sink is attached to its view: mode, guarantee, key, gathering of epochs, and limits.

Law 7: a sink that cannot give what is asked is refused when it is defined, not when it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from millpond.errors import InvalidError, nearest
from millpond.plan.sink_traits import (
    AppendOnly,
    ColumnsByName,
    ExactlyOnce,
    ModeHints,
    StatesGuarantee,
    StatesModes,
)

Guarantee = Literal["exactly_once", "at_least_once", "at_most_once"]
SinkMode = Literal["changes", "append", "upsert", "changelog", "complete"]
WhenBehind = Literal["pause", "hold"]

GUARANTEES: tuple[Guarantee, ...] = get_args(Guarantee)  # the strongest first
MODES: tuple[SinkMode, ...] = get_args(SinkMode)
OPERATION, EPOCH, NUMBER = "_op", "_epoch", "_n"  # columns that changelogs have besides the view's


@dataclass(frozen=True)
class SinkSettings:
    """What a user asks of a sink; None stands for the sink's own default.

    | mode | the sink receives |
    |---|---|
    | `changes` | the delta: rows with their weight `_w` |
    | `append` | new rows; a view that retracts rows is refused |
    | `upsert` | rows to put and rows to delete, one per key |
    | `changelog` | every change with its operation `_op`, its epoch `_epoch` and its number `_n` |
    | `complete` | all rows of the view, whenever one has changed |
    """

    mode: SinkMode | None = None
    guarantee: Guarantee | None = None
    key: tuple[str, ...] = ()  # columns that identify a row, for upserts and for updates in changelogs
    every_us: int = 0  # gather the epochs of this much time into one delivery
    snapshot: bool = True  # does a new sink receive the rows that its view already has?
    behind_max: int | None = None  # the number of epochs by which it may be behind
    when_behind: WhenBehind = "pause"  # then: pause the sink, or hold back new input


DEFAULT = SinkSettings()


def guarantee_of(sink: Any) -> Guarantee:
    """The strongest guarantee that a sink can give."""
    if isinstance(sink, StatesGuarantee) and sink.guarantee in GUARANTEES:
        return sink.guarantee  # type: ignore[no-any-return]
    return "exactly_once" if isinstance(sink, ExactlyOnce) and sink.exactly_once else "at_least_once"


def modes_of(sink: Any) -> tuple[SinkMode, ...]:
    """The modes that a sink supports; the first is its default."""
    if isinstance(sink, StatesModes) and sink.modes:
        return tuple(sink.modes)
    return ("append",) if isinstance(sink, AppendOnly) and sink.append_only else ("changes",)


def columns_by_name(sink: Any) -> bool:
    """Does the target hold rows under the names of their columns, so that these cannot change?"""
    return isinstance(sink, ColumnsByName) and bool(sink.columns_by_name)


def check_settings(name: str, settings: SinkSettings) -> None:
    """Refuse settings that no sink has."""
    _one_of(f"sink {name!r}: no guarantee is", settings.guarantee, GUARANTEES)
    _one_of(f"sink {name!r}: no mode is", settings.mode, MODES)
    _one_of(f"sink {name!r}: when_behind cannot be", settings.when_behind, get_args(WhenBehind))
    if settings.every_us < 0:
        raise InvalidError(f"sink {name!r}: every must be positive", detail=f"got {settings.every_us} us")
    if settings.behind_max is not None and settings.behind_max < 1:
        raise InvalidError(
            f"sink {name!r}: behind_max must be at least 1 epoch", detail=f"got {settings.behind_max}"
        )


def settled(
    name: str, sink: Any, settings: SinkSettings, *, key: Sequence[str] | None, append_only: bool
) -> SinkSettings:
    """The settings with the sink's defaults; refused if the sink or its view cannot give them.

    `key` and `append_only` are what is known of the view.
    """
    check_settings(name, settings)
    own, modes = guarantee_of(sink), modes_of(sink)
    guarantee: Guarantee = settings.guarantee or own
    mode: SinkMode = settings.mode or modes[0]
    if GUARANTEES.index(guarantee) < GUARANTEES.index(own):
        raise InvalidError(
            f"sink {name!r} cannot deliver {guarantee}",
            detail=f"{type(sink).__name__} delivers {own}",
            hint=f"ask for {own}, or use a sink that stores the epoch with the rows",
        )
    if mode not in modes:
        raise InvalidError(
            f"sink {name!r} has no mode {mode!r}",
            detail=f"modes of {type(sink).__name__} are {', '.join(modes)}",
            hint=sink.mode_hints.get(mode) if isinstance(sink, ModeHints) else None,
        )
    if settings.mode == "append" and not append_only:
        raise InvalidError(
            f"sink {name!r} cannot append: its view retracts rows",
            hint="use mode upsert or changelog, or a view that only grows, such as EMIT ON WINDOW CLOSE",
        )
    if settings.key and mode not in ("upsert", "changelog"):
        raise InvalidError(f"sink {name!r} needs no key in mode {mode}", hint="only upserts have a key")
    key_columns = settings.key or tuple(key or ())
    if mode == "upsert":
        _check_key(name, key_columns, key)
    elif mode == "changelog":
        key_columns = key_columns if key is not None and set(key) <= set(key_columns) else ()
    else:
        key_columns = ()
    return replace(settings, mode=mode, guarantee=guarantee, key=key_columns)


def _check_key(name: str, wanted: tuple[str, ...], known: Sequence[str] | None) -> None:
    if known is None or not wanted:
        raise InvalidError(
            f"sink {name!r} cannot upsert: its view has no key",
            detail=None if known is None else "it has one row",
            hint="group by the key, or use mode changelog or complete",
        )
    if not set(known) <= set(wanted):
        raise InvalidError(
            f"sink {name!r}: rows of the view are not unique by {', '.join(wanted)}",
            detail=f"the key of the view is {', '.join(known) or 'empty: it has one row'}",
            hint="name at least the columns of the view's key",
        )


def _one_of(what: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        hint = nearest(str(value), list(known)) or f"one of {', '.join(known)}"
        raise InvalidError(f"{what} {value!r}", detail=f"there are {', '.join(known)}", hint=hint)
