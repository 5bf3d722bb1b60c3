"""A case of a transcript as Millpond's windows and triggers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millpond import triggers, windows
from millpond.triggers import Trigger
from millpond.windows import Windows

SIMPLE: dict[str, Callable[..., Trigger]] = {
    "after_count": triggers.after_count,
    "after_delay": triggers.after_delay,
    "always": triggers.always,
    "never": triggers.never,
    "repeatedly": triggers.repeatedly,
    "after_any": triggers.after_any,
    "after_all": triggers.after_all,
    "after_each": triggers.after_each,
}
WINDOWS: dict[str, Callable[..., Windows]] = {
    "tumbling": windows.tumbling,
    "sliding": windows.sliding,
    "sessions": windows.sessions,
    "everything": windows.everything,
}


def window_of(spec: Sequence[Any]) -> Windows:
    name, *sizes = spec
    return WINDOWS[name](*sizes)


def trigger_of(spec: Sequence[Any]) -> Trigger:
    name, *arguments = spec
    if name == "after_watermark":
        early, late = (part and trigger_of(part) for part in arguments)
        return triggers.after_watermark(early=early, late=late)
    parts = [trigger_of(one) if isinstance(one, list) else one for one in arguments]
    if name == "or_finally":
        main, other = parts
        return main.or_finally(other)
    return SIMPLE[name](*parts)
