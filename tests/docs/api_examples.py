"""The examples in the docstrings of the public classes, as doctests.

An example of a method runs after the example of its class, which defines what it uses; `tmp` is an empty folder.
"""

from __future__ import annotations

import datetime
import doctest
import inspect
from pathlib import Path
from typing import Any

import millpond
from millpond.flow.keyed_stream import KeyedStream
from millpond.flow.stream import ProcessedStream, Stream, ViewHandle
from millpond.flow.windowed import WindowedStream
from millpond.pond import Pond
from millpond.pond.transaction import Transaction
from millpond.serve.epoch_view import Moment
from millpond.serve.view_reader import ViewReader
from millpond.sql.result import Result
from millpond.testing import Harness

CLASSES: tuple[type, ...] = (
    Pond,
    Transaction,
    Stream,
    ViewHandle,
    ProcessedStream,
    KeyedStream,
    WindowedStream,
    Result,
    ViewReader,
    Moment,
    Harness,
)
# Whose class has an example, as their methods work only inside a process step.
STATES = (
    millpond.ValueState,
    millpond.ReducingState,
    millpond.AggregatingState,
    millpond.ListState,
    millpond.MapState,
    millpond.BroadcastState,
)
FLAGS = doctest.ELLIPSIS


def public_members(cls: type) -> list[str]:
    """The methods and properties that a class defines for users."""
    return [
        name
        for name, member in vars(cls).items()
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
    ]


def docstring(cls: type, name: str) -> str:
    member = inspect.getattr_static(cls, name)
    return inspect.getdoc(member.fget if isinstance(member, property) else getattr(cls, name)) or ""


def has_example(text: str) -> bool:
    return bool(doctest.DocTestParser().get_examples(text))


def run_example(cls: type, name: str | None, tmp: Path, **names: Any) -> str:
    """Run the example of a class and then that of a method; returns what failed."""
    space = {
        **vars(inspect.getmodule(cls) or datetime),
        "__name__": "__main__",
        "tmp": tmp,
        "datetime": datetime,
        **names,
    }
    texts = [inspect.getdoc(cls) or "", *([] if name is None else [docstring(cls, name)])]
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    for text in texts:
        title = cls.__name__ if name is None else f"{cls.__name__}.{name}"
        test = doctest.DocTestParser().get_doctest(text, space, title, None, None)
        test.globs = space  # the example of the method continues that of the class
        runner.run(test, out=said.append, clear_globs=False)
    opened = [value for value in space.values() if isinstance(value, Pond | Harness)]
    for one in opened:
        one.close()
    return "".join(said)
