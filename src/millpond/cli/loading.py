"""Loads a pipeline file: Python that defines `pipeline(pond)` or opens a `pond` itself, or SQL definitions.

The file runs like a module, so a block under ``if __name__ == "__main__"`` does not run.
Its functions and classes are stored by value: workers, and processes that read the pond later, do not need
the
file.
"""

from __future__ import annotations

import re
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

import millpond
from millpond.cli.store_arguments import store_options_for
from millpond.errors import InvalidError, MillpondError
from millpond.plan.nodes import Plan
from millpond.pond import Pond
from millpond.state.store.memory_store import MemoryStore


@dataclass(frozen=True)
class PipelineFile:
    path: Path
    define: Callable[[Pond], Any] | None  # pipeline(pond)
    pond: Pond | None  # opened by the file itself

    def plan(self) -> Plan:
        """The plan that the file defines; no pond is changed."""
        if self.define is None:
            assert self.pond is not None
            return self.pond.plan
        with Pond(MemoryStore(), engine="inline") as scratch:
            self.apply(scratch)
            return scratch.plan

    def apply(self, pond: Pond) -> None:
        """Define the pipeline in a pond."""
        assert self.define is not None
        try:
            self.define(pond)
        except MillpondError:
            raise
        except Exception as error:  # whatever the file's own code raises
            raise _failed(self.path, error) from error


def load(file: str) -> PipelineFile:
    """Run a Python file and return what it defines; a SQL file runs when it is applied to a pond."""
    path = Path(file).expanduser().absolute()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"{file} cannot be read", detail=f"{type(error).__name__}: {error}") from error
    if path.suffix == ".sql":
        return PipelineFile(path, lambda pond: pond.session.define_all(text), None)
    module = types.ModuleType("pipeline_" + re.sub(r"\W", "_", path.stem))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and type hints need their module
    if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(module)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    except MillpondError:
        raise
    except Exception as error:  # whatever the file's own code raises
        raise _failed(path, error) from error
    define, pond = module.__dict__.get("pipeline"), module.__dict__.get("pond")
    if callable(define):
        return PipelineFile(path, define, None)
    if isinstance(pond, Pond):
        return PipelineFile(path, None, pond)
    raise InvalidError(
        f"{path.name} defines no pipeline",
        detail="it has neither a function `pipeline(pond)` nor a variable `pond`",
        hint="write: def pipeline(pond): pond.stream(...)",
    )


def open_for(
    loaded: PipelineFile,
    path: str | None,
    engine: str | None,
    parallelism: int | None,
    standby: bool = False,
    trust: bool = False,
    take_over: bool = False,
    *,
    master: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
    **settings: Any,
) -> Pond:
    """Open the pond and define the pipeline in it."""
    if loaded.define is None:
        assert loaded.pond is not None
        options = (path, engine, parallelism, master, spark_conf or None)
        if any(o is not None for o in options) or standby or trust or take_over:
            raise InvalidError(
                f"{loaded.path.name} opens its own pond",
                hint="leave out the options that open one, or define pipeline(pond) instead",
            )
        return loaded.pond
    if path is None:
        raise InvalidError(
            "the option --pond is missing",
            detail=f"{loaded.path.name} defines pipeline(pond)",
            hint="pass --pond PATH; the pond is created if it does not exist",
        )
    kind: Any = engine or "spark"
    pond = millpond.open(
        path,
        engine=kind,
        parallelism=parallelism,
        standby=standby,
        trust=trust,
        take_over=take_over,
        master=master,
        spark_conf=spark_conf,
        store_options=store_options_for(path),
        **settings,
    )
    loaded.apply(pond)
    return pond


def _failed(path: Path, error: BaseException) -> InvalidError:
    """The error of a file, with the line."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else (lines[-1] if lines else None)
    place = path.name if line is None else f"{path.name}:{line}"
    return InvalidError(
        f"{path.name} cannot be run", detail=f"{type(error).__name__}: {error} ({place})", hint="fix the file"
    )
