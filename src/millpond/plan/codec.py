"""Plans as JSON, for the catalog.

The bound plan is stored and never derived again from text, so an upgrade
cannot orphan state.  Frozen dataclasses are written by class and field; Arrow
schemas as IPC; a user's functions by cloudpickle.  A field whose metadata says
``durable=False`` is left out and comes back as its default.
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
            fields = {
                f.name: encode(getattr(value, f.name))
                for f in dataclasses.fields(value)
                if f.init and f.metadata.get("durable", True)
            }
            return {"$class": f"{cls.__module__}:{cls.__qualname__}", "fields": fields}
    if isinstance(value, Mapping):
        return {"$map": [[encode(k), encode(v)] for k, v in value.items()]}
    return {"$pickle": _b64(_pickled(value))}


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    if "$class" in value:
        module, _, name = value["$class"].partition(":")
        try:
            cls: Any = _find(module, name)
        except (ImportError, AttributeError) as error:
            raise DataError(
                f"the catalog names a class that is not here: {value['$class']}",
                detail=str(error),
                hint="install the package that defines it, here and for the workers",
            ) from error
        return cls(**{k: decode(v) for k, v in value["fields"].items()})
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
        return cloudpickle.loads(base64.b64decode(value["$pickle"]))
    raise DataError("the catalog holds a value of an unknown kind", detail=str(sorted(value)))


def _pickled(value: Any) -> bytes:
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
    return getattr(sys.modules.get(cls.__module__), cls.__qualname__.split(".")[0], None) is not None


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
