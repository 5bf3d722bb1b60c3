"""Plans as JSON, for the catalog.

The bound plan is stored and never derived again from text, so an upgrade
cannot orphan state.  Frozen dataclasses are written by class and field; Arrow
schemas as IPC; a user's functions by cloudpickle.  A field whose metadata says
``durable=False`` is left out and comes back as its default.

Code goes on while a pond stays: what a user defined may have moved or changed
its fields.  Then it comes back as `Unloaded`, which says so once it is used, so
that the rest of the plan can still be read, compared and replaced.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import cloudpickle
import pyarrow as pa

from millpond.errors import DataError, InvalidError


class Unloaded:
    """Something of a user's that the catalog names and this process cannot make."""

    def __init__(self, raw: Any, what: str, why: str) -> None:
        self._raw = raw
        self._what = what
        self._why = why

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise self._error()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._error()

    def _error(self) -> DataError:
        return DataError(
            f"the catalog names {self._what}",
            detail=self._why,
            hint="install the package that defines it, here and for the workers, or define the pipeline anew",
        )


def dumps(value: Any) -> bytes:
    return json.dumps(encode(value), separators=(",", ":"), sort_keys=True).encode()


def loads(raw: bytes) -> Any:
    try:
        return decode(json.loads(raw))
    except (ValueError, KeyError, TypeError, pa.ArrowException) as broken:
        raise DataError(
            "the catalog cannot be read",
            detail=f"{len(raw)} bytes, {type(broken).__name__}: {broken}",
            hint="restore the file under catalog/ from a copy, or use the version that wrote it",
        ) from broken


def encode(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"$float": value.hex()}
    if isinstance(value, Unloaded):
        return value._raw
    if isinstance(value, tuple | list):
        return [encode(v) for v in value]
    if isinstance(value, frozenset):
        return {"$set": sorted(encode(v) for v in value)}
    if isinstance(value, bytes):
        return {"$bytes": _b64(value)}
    if isinstance(value, pa.Schema):
        return {"$schema": _b64(value.serialize().to_pybytes())}
    if isinstance(value, pa.DataType):
        return {"$type": _b64(pa.schema([pa.field("t", value)]).serialize().to_pybytes())}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        if _findable(cls):
            if getattr(cls, "encoded_once", False):
                return _once(value)
            fields = {
                f.name: encode(getattr(value, f.name))
                for f in dataclasses.fields(value)
                if f.init and f.metadata.get("durable", True)
            }
            return {"$class": f"{cls.__module__}:{cls.__qualname__}", "fields": fields}
    if isinstance(value, Mapping):
        return {"$map": [[encode(k), encode(v)] for k, v in value.items()]}
    return {"$pickle": _b64(pickled(value))}


def _once(value: Any) -> Any:
    """What was encoded before, kept with the object: a program is stored with every change of it."""
    held = value.__dict__.get("_encoded")
    if held is None:
        cls = type(value)
        fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        held = {"$class": f"{cls.__module__}:{cls.__qualname__}", "fields": fields}
        value.__dict__["_encoded"] = held
    return held


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    if "$class" in value:
        return _made(value)
    if "$map" in value:
        return {decode(k): decode(v) for k, v in value["$map"]}
    if "$set" in value:
        return frozenset(decode(v) for v in value["$set"])
    if "$float" in value:
        return float.fromhex(value["$float"])
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$schema" in value:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["$schema"])))
    if "$type" in value:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["$type"]))).field(0).type
    if "$pickle" in value:
        try:
            return cloudpickle.loads(base64.b64decode(value["$pickle"]))
        except (ImportError, AttributeError) as error:  # code that moved, or is not installed here
            return Unloaded(value, "code that is not here", str(error))
    raise DataError("the catalog holds a value of an unknown kind", detail=str(sorted(value)))


def _made(value: Mapping[str, Any]) -> Any:
    """An object of a class that is known by name."""
    module, _, name = value["$class"].partition(":")
    ours = module.partition(".")[0] == __name__.partition(".")[0]
    try:
        cls: Any = _find(module, name)
    except (ImportError, AttributeError) as error:
        lost = Unloaded(value, f"a class that is not here: {value['$class']}", str(error))
        if ours:
            raise lost._error() from error
        return lost
    fields = {k: decode(v) for k, v in value["fields"].items()}
    try:
        return cls(**fields)
    except TypeError as error:
        if ours:
            raise
        return Unloaded(value, f"a class that has other fields now: {value['$class']}", str(error))


def pickled(value: Any) -> bytes:
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # whatever the parts of a user's object raise
        raise InvalidError(
            f"{getattr(value, '__qualname__', type(value).__name__)} cannot be stored with the plan",
            detail=f"{type(error).__name__}: {error}",
            hint="let it hold no locks, files or connections: make them inside the function",
        ) from error


def _find(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _findable(cls: type) -> bool:
    """Can another process import this class by its name?"""
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        return False
    if cls.__module__ in cloudpickle.list_registry_pickle_by_value():  # a file that was run, not imported
        return False
    return getattr(sys.modules.get(cls.__module__), cls.__qualname__.split(".")[0], None) is not None


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
