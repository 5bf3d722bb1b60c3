"""The debugger of a replay: it stops where a user's code raised, or before a step."""

from __future__ import annotations

import pdb
import sys
from bdb import BdbQuit
from collections.abc import Callable

from millpond.operators.operator import Inputs

MakeDebugger = Callable[[], pdb.Pdb]


class Debugger:
    """`on_input` and `on_error` for a replay; each opens pdb at its place."""

    def __init__(self, make: MakeDebugger = pdb.Pdb) -> None:
        self._make = make

    def on_error(self, error: BaseException) -> None:
        """Where it was raised; `c` goes on to the next one, `q` ends the replay."""
        trace = error.__traceback__
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        debugger = self._make()
        debugger.reset()
        debugger.interaction(None, trace)
        if debugger.quitting:
            raise BdbQuit

    def on_input(self, step: str, inputs: Inputs) -> None:
        """Before a step: `inputs` are its deltas, as Arrow tables; `c` goes on, into breakpoints if any."""
        shown = ", ".join("nothing" if i is None else f"{i.num_rows} rows" for i in inputs)
        print(f"step {step!r} gets {shown}; look at `inputs`, `c` goes on", file=sys.stderr)
        self._make().set_trace(sys._getframe())
