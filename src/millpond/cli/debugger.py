"""The debugger of a replay: it stops where user code raised an exception, or before a step."""

from __future__ import annotations

import pdb
import sys
from bdb import BdbQuit
from collections.abc import Callable

from millpond.operators.operator import Inputs

MakeDebugger = Callable[[], pdb.Pdb]


class Debugger:
    """The callbacks `on_input` and `on_error` of a replay; each opens pdb."""

    def __init__(self, make: MakeDebugger = pdb.Pdb) -> None:
        self._make = make

    def on_error(self, error: BaseException) -> None:
        """Stop where the error was raised; `c` continues to the next error, `q` ends the replay."""
        trace = error.__traceback__
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        debugger = self._make()
        debugger.reset()
        debugger.interaction(None, trace)
        if debugger.quitting:
            raise BdbQuit

    def on_input(self, step: str, inputs: Inputs) -> None:
        """Stop before a step; `inputs` are its deltas as Arrow tables; `c` continues."""
        shown = ", ".join("nothing" if i is None else f"{i.num_rows} rows" for i in inputs)
        print(f"step {step!r} gets {shown}; look at `inputs`, `c` continues", file=sys.stderr)
        self._make().set_trace(sys._getframe())
