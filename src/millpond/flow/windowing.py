"""What `window()` was asked for: the kind of windows, when they are emitted, and in which mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from millpond.arguments.durations import Duration, microseconds
from millpond.errors import InvalidError
from millpond.flow.window_kinds import Windows
from millpond.flow.window_steps import Mode
from millpond.kernels.triggers import AfterWatermark, Trigger


@dataclass(frozen=True)
class Windowing:
    """The arguments of `window()`, checked."""

    windows: Windows
    trigger: Trigger | None
    lateness_us: int
    mode: Mode
    panes: bool

    @property
    def closes(self) -> bool:
        """Is every window emitted once, at its end, without the columns of a pane?"""
        return self.trigger == AfterWatermark() and not self.panes and not self.lateness_us

    @property
    def after_us(self) -> int:
        """How far the watermark is past the end of a window when it takes no more rows."""
        return 0 if self.closes else self.lateness_us + 1


def windowing(
    windows: Windows,
    trigger: Trigger | None,
    allowed_lateness: Duration | None,
    mode: Mode | None,
    panes: bool,
    on_close: bool,
) -> Windowing:
    """Check what does not depend on the stream."""
    if not isinstance(windows, Windows):
        raise InvalidError(
            f"{windows!r} are no windows"[:200], hint="call one of millpond.windows, such as tumbling('10s')"
        )
    if trigger is not None and not isinstance(trigger, Trigger):
        raise InvalidError(
            f"{trigger!r} is no trigger"[:200], hint="call one of millpond.triggers, such as after_count(10)"
        )
    if mode is not None and mode not in get_args(Mode):
        raise InvalidError(f"no mode {mode!r}", hint=f"modes are {', '.join(get_args(Mode))}")
    if on_close:
        if trigger is not None:
            raise InvalidError("on_close is a trigger itself", hint="pass either on_close or trigger")
        trigger = AfterWatermark()
    if trigger is None and panes:
        raise InvalidError(
            "panes need a trigger", hint="for example trigger=after_watermark(early=every('5s'))"
        )
    if trigger is None and mode not in (None, "retracting"):
        raise InvalidError(
            f"mode {mode!r} needs a trigger",
            detail="without a trigger each change of a window retracts what was there before",
            hint="for example trigger=always()",
        )
    lateness_us = 0 if allowed_lateness is None else microseconds(allowed_lateness)
    if lateness_us < 0:
        raise InvalidError("the allowed lateness cannot be negative", detail=f"got {allowed_lateness!r}")
    return Windowing(windows, trigger, lateness_us, mode or "retracting", panes)
