"""Turns calls with wrong arguments into errors of Millpond that show the right ones."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from millpond.errors import InvalidError, nearest

T = TypeVar("T")


class NoSuchMethodError(InvalidError, AttributeError):
    """A method that does not exist, or not yet; `hasattr` still works."""


def no_method(thing: Any, name: str, hints: Mapping[str, str]) -> NoSuchMethodError:
    """The error for a method that a class does not have, with the method to call instead."""
    known = [n for n in dir(type(thing)) if not n.startswith("_")]
    article = "an" if type(thing).__name__[0] in "AEIOU" else "a"
    return NoSuchMethodError(
        f"{article} {type(thing).__name__} has no {name}()",
        detail=f"it has {', '.join(known)}",
        hint=hints.get(name) or nearest(name, known),
    )


def need_callable(what: str, function: Any) -> None:
    if not callable(function):
        raise InvalidError(
            f"{what} must be a function", detail=f"got {type(function).__name__} {function!r}"[:200]
        )


def need_number(what: str, number: Any, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise InvalidError(f"{what} must be a whole number of at least {least}", detail=f"got {number!r}")


def need_text(what: str, text: Any, hint: str | None = None) -> None:
    if not isinstance(text, str):
        raise InvalidError(
            f"{what} must be text", detail=f"got {type(text).__name__} {text!r}"[:200], hint=hint
        )


def need_epoch(method: str, epoch: Any) -> Any:
    if epoch is None:
        raise InvalidError(f"{method}() needs an epoch", hint="a number, or the name of a savepoint")
    return epoch


def check_expressions(computed: Mapping[str, Any]) -> None:
    """Every computed column is SQL text."""
    for name, text in computed.items():
        need_text(f"the expression of column {name!r}", text, f'SQL in quotes: {name}="..."')


def checked(cls: type[T]) -> type[T]:
    """Wrap the public methods of a class so that a call with wrong arguments reports the right ones.

    A correct call costs nothing: the signature is only inspected after a TypeError.
    """
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            shown = cls.__name__ if name == "__init__" else name
            setattr(cls, name, with_call_errors(member, shown, skip=1))
    return cls


def with_call_errors(function: Callable[..., Any], shown: str, *, skip: int = 0) -> Callable[..., Any]:
    """The function; `skip` is the number of parameters that callers do not write (self)."""

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except TypeError as error:
            signature = inspect.signature(function)
            try:
                signature.bind(*given, **named)
            except TypeError as wrong:
                named_so = type(given[0]).__name__ if function.__name__ == "__init__" else shown
                raise InvalidError(
                    f"{named_so}() cannot be called like this",
                    detail=str(wrong),
                    hint=f"call it as {named_so}({_parameters(signature, skip)})",
                ) from error
            raise

    return called


def _parameters(signature: inspect.Signature, skip: int) -> str:
    """The parameters without their types, and without private ones."""
    parameters = [p for p in list(signature.parameters.values())[skip:] if not p.name.startswith("_")]
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(plain))[1:-1]
