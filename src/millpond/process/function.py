"""The user's code of a process step: a class with `on_row`, or a function.

States are declared where they are used: as attributes of the class, or as
defaults of the function's parameters.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

STATES = "_states_in_place"  # the attribute that marks an object whose states are bound


class Process:
    """A computation per key.  Only states persist; everything else is lost after an epoch.

    An attribute that is set on `self` while rows are processed would be shared by the keys of a task and then
    lost, so this is refused; a name that begins with an underscore may hold a cache.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        states = self.__dict__.get(STATES)
        if states is not None and name in states:
            raise TypeError(f"{name} is a state: set self.{name}.value, or call its methods")
        if states is not None and not name.startswith("_"):
            raise TypeError(
                f"self.{name} is not kept: declare {name} = ValueState(...) in the class, "
                f"or call it _{name} if it is a cache that may be lost"
            )
        object.__setattr__(self, name, value)

    def on_row(self, row: Any, ctx: Any) -> Any:
        """Process one row; returns or yields rows, or nothing."""
        raise NotImplementedError

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        """Handle a timer that fires; returns or yields rows, or nothing."""
        raise NotImplementedError

    def on_control(self, row: Any, ctx: Any) -> Any:
        """Process a row of the control stream, in every task, before the rows of any key."""
        raise NotImplementedError

    def on_control_removed(self, row: Any, ctx: Any) -> Any:
        """Handle the retraction of a row of the control stream."""
        raise NotImplementedError


@dataclass(frozen=True)
class Code:
    """A user's class or function, and its methods."""

    target: Any  # an instance of Process, or a function
    states: tuple[tuple[str, str], ...]  # (attribute or parameter, state)

    def has(self, method: str) -> bool:
        if not isinstance(self.target, Process):
            return method == "on_row"
        return getattr(type(self.target), method) is not getattr(Process, method)

    def where(self, method: str) -> Callable[..., Any]:
        """The function whose lines an error should name."""
        target: Callable[..., Any] = (
            getattr(self.target, method) if isinstance(self.target, Process) else self.target
        )
        return target

    def bound(self, handles: Mapping[str, Any]) -> Mapping[str, Callable[..., Any]]:
        """The methods by name, with the states bound."""
        attributes = {attribute: handles[state] for attribute, state in self.states}
        if isinstance(self.target, Process):
            mine = copy.copy(self.target)
            for attribute, handle in attributes.items():
                object.__setattr__(mine, attribute, handle)
            object.__setattr__(mine, STATES, frozenset(attributes))
            return {
                method: getattr(mine, method)
                for method in ("on_row", "on_timer", "on_control", "on_control_removed")
                if self.has(method)
            }
        return {"on_row": _with_states(self.target, attributes)}


def _with_states(function: Callable[..., Any], handles: Mapping[str, Any]) -> Callable[..., Any]:
    """A function of (row, ctx) with the states bound by position or name."""
    parameters = inspect.signature(function).parameters
    takes_ctx = "ctx" in parameters
    if takes_ctx:
        return lambda row, ctx: function(row, ctx=ctx, **handles)
    positional = [name for name in parameters][1:]
    if list(handles) == positional and all(
        parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for name in positional
    ):
        states = tuple(handles.values())
        if len(states) == 1:
            (only,) = states
            return lambda row, ctx: function(row, only)
        return lambda row, ctx: function(row, *states)
    return lambda row, ctx: function(row, **handles)
