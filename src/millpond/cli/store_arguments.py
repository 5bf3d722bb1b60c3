"""`--store-option NAME=VALUE`, which every command that opens a pond has.

The option is added to a command where the program is assembled, and applies to every bucket that the command
opens; a folder has none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import typer

from millpond.errors import InvalidError
from millpond.state.store.location import is_local, uri_of

NAME = "store_option"
PAIRS = "NAME=VALUE"
StoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--store-option",
        metavar=PAIRS,
        help="An option of the pond's bucket, such as endpoint or region; may be repeated.",
        show_default=False,
    ),
]
_given: ContextVar[dict[str, str] | None] = ContextVar("store options of the command", default=None)


def parse_pairs(pairs: Sequence[str] | None, option: str) -> dict[str, str]:
    """
    >>> parse_pairs(["region=eu", "a=b=c"], "--conf")
    {'region': 'eu', 'a': 'b=c'}
    """
    found = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise InvalidError(f"{option} takes {PAIRS}", detail=f"got {pair!r}")
        found[name] = value
    return found


def store_options_for(pond: str) -> dict[str, str]:
    """The options that this command was given, for this pond."""
    uri = uri_of(pond)
    return {} if is_local(uri) or uri.startswith("memory:") else dict(_given.get() or {})


@contextmanager
def giving(pairs: Sequence[str] | None) -> Iterator[None]:
    before = _given.set(parse_pairs(pairs, "--store-option"))
    try:
        yield
    finally:
        _given.reset(before)


def with_store_options(command: Callable[..., Any], wrapper: Callable[..., None]) -> None:
    """Add the option to the wrapper of a command, if the command opens ponds."""
    signature = inspect.signature(command, eval_str=True)
    if "pond" not in signature.parameters and "backup" not in signature.parameters:
        return
    added = inspect.Parameter(NAME, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=StoreOptions)
    parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY) if p.name == "output" else p
        for p in signature.parameters.values()
    ]
    wrapper.__dict__["__signature__"] = signature.replace(parameters=[*parameters, added])
    wrapper.__annotations__ = {**wrapper.__annotations__, NAME: StoreOptions}
