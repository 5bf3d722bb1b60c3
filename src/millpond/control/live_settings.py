"""Settings that can change while a pond runs: they are in the manifest, so a takeover keeps them.

Law: a change is an entry of the inbox, executed in order with the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from millpond.control.admission import Bounds
from millpond.errors import InvalidError
from millpond.settings import Settings, make_settings

PAUSED = "paused"
CHANGEABLE = (
    "target_ms",
    "catch_up_ms",
    "epoch_rows_max",
    "epoch_bytes_max",
    "autoscale",
    "tasks_min",
    "tasks_max",
    "executors_min",
    "executors_max",
    "backlog_ms_max",
    "scaling_pause_ms",
)
_BOUNDS = {
    "target_ms": "target_ms",
    "catch_up_ms": "catch_up_ms",
    "epoch_rows_max": "rows_max",
    "epoch_bytes_max": "bytes_max",
}


def changed_settings(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The changed settings after another change; None takes one back to what the pond was opened with.

    >>> changed_settings({"target_ms": 100, "tasks_max": 4}, {"target_ms": None, "paused": True})
    {'tasks_max': 4, 'paused': True}
    """
    for name, value in given.items():
        if name == PAUSED:
            if not isinstance(value, bool | None):
                raise InvalidError("a pond is paused or not", detail=f"got {value!r}")
        elif name not in CHANGEABLE:
            if name in {f.name for f in fields(Settings)}:
                raise InvalidError(
                    f"setting {name!r} cannot change while the pond runs",
                    detail=f"those that can are {', '.join(CHANGEABLE)}",
                    hint="close the pond, and open it with the setting",
                )
            make_settings(**{name: value})  # raises: there is no such setting
        elif value is not None:
            make_settings(**{name: value})
    merged = {**before, **given}
    return {name: value for name, value in merged.items() if value is not None and value is not False}


def live_bounds(bounds: Bounds, changed: Mapping[str, Any]) -> Bounds:
    """What an epoch may take, after the changes.

    >>> live_bounds(Bounds(), {"target_ms": 50, "autoscale": "on"}).target_ms
    50
    """
    found = {field: changed[name] for name, field in _BOUNDS.items() if name in changed}
    return replace(bounds, **found) if found else bounds


def live_settings(settings: Settings, changed: Mapping[str, Any]) -> Settings:
    found = {name: value for name, value in changed.items() if name in CHANGEABLE}
    return replace(settings, **found) if found else settings
