"""Commands to a pond: each is checked, and then sent to the inbox.

Law: what the head manifest already shows to be wrong is refused here, before anything is written; the
coordinator checks a command again when it executes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.arguments.call_errors import need_text
from millpond.arguments.names import check_name
from millpond.control.live_settings import changed_settings
from millpond.engine.coordinator.commands import require_parallelism
from millpond.errors import InvalidError, nearest
from millpond.plan.tables import late_steps
from millpond.pond.inbox_client import InboxClient


def rescale(inbox: InboxClient, tasks: int) -> None:
    require_parallelism(tasks)
    inbox.command("rescale", {"parallelism": tasks})


def change_settings(inbox: InboxClient, settings: Mapping[str, Any]) -> None:
    changed_settings({}, settings)
    inbox.command("settings", {"settings": settings})


def add_savepoint(inbox: InboxClient, name: str) -> None:
    check_name("a savepoint", name)
    inbox.components.reader.head()  # of a pond that exists
    if name.isdecimal():
        raise InvalidError(
            f"{name!r} cannot be the name of a savepoint", detail="it would be taken for an epoch"
        )
    inbox.command("savepoint", {"name": name})


def drop_savepoint(inbox: InboxClient, name: str) -> None:
    need_text("the name of a savepoint", name)
    savepoints = inbox.components.reader.head().savepoints
    if inbox.execution.runner is not None and name not in savepoints:
        raise InvalidError(
            f"no savepoint named {name!r}",
            detail=f"savepoints are {', '.join(sorted(savepoints)) or 'none'}",
            hint=nearest(name, savepoints),
        )
    inbox.command("drop_savepoint", {"name": name})


def clear_errors(inbox: InboxClient, view: str | None) -> None:
    views = inbox.execution.plan.views
    if view is not None and view not in views:
        raise InvalidError(
            f"no view named {view!r}",
            detail=f"views are {', '.join(sorted(views)) or 'none'}",
            hint="name a view, or no view for all error rows",
        )
    inbox.command("clear_errors", {} if view is None else {"view": view})


def clear_late(inbox: InboxClient, step: str | None) -> None:
    steps = late_steps(inbox.execution.plan)
    if step is not None and step not in steps:
        raise InvalidError(
            f"step {step!r} keeps no late rows",
            detail=f"those that do are {', '.join(steps) or 'none'}",
            hint="name a watermark step, or no step for all late rows",
        )
    inbox.command("clear_late", {} if step is None else {"step": step})
