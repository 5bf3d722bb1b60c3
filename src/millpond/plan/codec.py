"""Encodes plans as JSON for the catalog, and decodes them.

The bound plan is stored and never derived again from text, so an upgrade cannot orphan state.
Frozen dataclasses are written by tag (`plan.tags`) and field, Arrow schemas as IPC, a user's functions by
cloudpickle, and a user's dataclasses by module and class.
A field whose metadata says ``durable=False`` is left out and gets its default when it is read.

Law: `read` runs no stored code.
User code comes back as `Stored`, and `with_code` turns the plan into one that can run
(`millpond.stored_code`).

User code may have moved or changed its fields since it was stored.
Loading it then gives `Unloaded`, which raises an error when it is used, so that the rest of the plan can
still be compared and replaced.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import functools
import importlib
import json
import sys
import uuid
import zoneinfo
from collections.abc import Mapping
from typing import Any

import cloudpickle
import pyarrow as pa

from millpond import moved_names
from millpond.errors import DataError, InvalidError
from millpond.kernels.user_code import name_of
from millpond.operators.source_traits import StoredWithSchema
from millpond.plan import catalog_format
from millpond.plan.nodes import Node
from millpond.plan.tags import UnknownTagError, class_of, tag_of
from millpond.stored_code import Guard, Stored, anything, note_own


class Unloaded:
    """A user's object that the catalog names and this process cannot load."""

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
            hint="install the package that defines it, here and on the workers, or define the pipeline again",
        )


def dumps(value: Any) -> bytes:
    content = catalog_format.wrapped(encode(value))
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def loads(raw: bytes, guard: Guard = anything) -> Any:
    """Decode a catalog and load its user code, which may run while it is loaded."""
    return with_code(read(raw, guard))


def read(raw: bytes, guard: Guard = anything) -> Any:
    """Decode a catalog with its user code as `Stored`; the guard is asked before any of it is loaded."""
    written_by: str | None = None
    try:
        written_by, value = catalog_format.unwrapped(json.loads(raw), encode)
        return decode(value, guard)
    except UnknownTagError as unknown:
        raise catalog_format.too_new(
            f"it uses {str(unknown)!r}, which is not known here", written_by
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException) as broken:
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
    if isinstance(value, Stored):
        return value.raw
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
        if (tag := tag_of(cls)) is not None:
            return _once(value, tag) if issubclass(cls, Node) else _tagged(value, tag)
        if _findable(cls):
            encoded = {"$user": f"{cls.__module__}:{cls.__qualname__}", "fields": _fields(value)}
            note_own(encoded)
            return encoded
    if isinstance(value, Mapping):
        return {"$map": [[encode(k), encode(v)] for k, v in value.items()]}
    plain = _plain(value)
    if plain is not None:
        return plain
    return _code(pickled(value), value)


def _code(raw: bytes, value: Any) -> Any:
    code = {"$pickle": _b64(raw), "name": _called(value)}
    note_own(code)
    return code


def _tagged(value: Any, tag: str) -> Any:
    return {"$": tag, "fields": _fields(value)}


def _fields(value: Any) -> dict[str, Any]:
    encoded = {}
    for f in dataclasses.fields(value):
        if f.init and f.metadata.get("durable", True):
            member = getattr(value, f.name)
            named: str = f.metadata.get("pickle_of", "")  # the field of the object that these bytes are
            is_code = named and isinstance(member, bytes)
            encoded[f.name] = _code(member, getattr(value, named)) if is_code else encode(member)
    return encoded


def _once(value: Any, tag: str) -> Any:
    """Encode a node once and cache the result in it: the whole plan is stored with every change."""
    cached = value.__dict__.get("_encoded")
    if cached is None:
        cached = value.__dict__["_encoded"] = _tagged(value, tag)
    return cached


def _plain(value: Any) -> Any:
    """Encode values of Python's own data classes; None for everything else."""
    if type(value) is decimal.Decimal:
        return {"$decimal": str(value)}
    if type(value) is datetime.datetime:
        zone = value.tzinfo
        if zone is None or type(zone) is datetime.timezone:
            return {"$datetime": value.isoformat(), "fold": value.fold}
        if isinstance(zone, zoneinfo.ZoneInfo) and zone.key is not None:
            return {"$datetime": value.replace(tzinfo=None).isoformat(), "fold": value.fold, "zone": zone.key}
        return None
    if type(value) is datetime.date:
        return {"$date": value.isoformat()}
    if type(value) is datetime.time and value.tzinfo is None:
        return {"$time": value.isoformat()}
    if type(value) is datetime.timedelta:
        return {"$timedelta": [value.days, value.seconds, value.microseconds]}
    if type(value) is uuid.UUID:
        return {"$uuid": str(value)}
    return None


def decode(value: Any, guard: Guard = anything) -> Any:
    """Decode a value of the newest format."""
    if isinstance(value, list):
        return tuple([decode(v, guard) for v in value])
    if not isinstance(value, dict):
        return value
    if "$" in value:
        return _made(class_of(value["$"]), value["fields"], guard)
    if "$map" in value:
        return {decode(k, guard): decode(v, guard) for k, v in value["$map"]}
    if "$set" in value:
        return frozenset(decode(v, guard) for v in value["$set"])
    if "$float" in value:
        return float.fromhex(value["$float"])
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$schema" in value:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["$schema"])))
    if "$type" in value:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["$type"]))).field(0).type
    if "$pickle" in value:
        name = value.get("name", "code")
        return Stored(value, str(name), functools.partial(_unpickled, value), guard)
    if "$user" in value:
        name = str(value["$user"]).rpartition(":")[2]
        return Stored(value, name, functools.partial(_found, value, guard), guard)
    return _data(value)


def _data(value: Mapping[str, Any]) -> Any:
    if "$decimal" in value:
        return decimal.Decimal(value["$decimal"])
    if "$datetime" in value:
        instant = datetime.datetime.fromisoformat(value["$datetime"]).replace(fold=value["fold"])
        return instant.replace(tzinfo=zoneinfo.ZoneInfo(value["zone"])) if "zone" in value else instant
    if "$date" in value:
        return datetime.date.fromisoformat(value["$date"])
    if "$time" in value:
        return datetime.time.fromisoformat(value["$time"])
    if "$timedelta" in value:
        return datetime.timedelta(*value["$timedelta"])
    if "$uuid" in value:
        return uuid.UUID(value["$uuid"])
    raise UnknownTagError(" ".join(sorted(value)))


def _made(cls: type, fields: Mapping[str, Any], guard: Guard) -> Any:
    """Create an object of one of our classes."""
    if issubclass(cls, StoredWithSchema) and fields.get("schema") is None:
        raise ValueError(f"a {cls.__name__} without its schema")
    decoded = {k: decode(v, guard) for k, v in fields.items()}
    try:
        return cls(**decoded)
    except TypeError:
        more = decoded.keys() - {f.name for f in dataclasses.fields(cls)}
        if more:
            raise UnknownTagError(f"{cls.__name__}.{min(more)}") from None
        raise


# -- code -----------------------------------------------------------------------------


def with_code(value: Any) -> Any:
    """Load all stored code in a value; an object that contains none is returned unchanged."""
    if isinstance(value, Stored):
        return value.load()
    if isinstance(value, tuple):
        made = tuple(with_code(v) for v in value)
        return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
    if isinstance(value, dict):
        changed = {k: with_code(v) for k, v in value.items()}
        return changed if any(changed[k] is not v for k, v in value.items()) else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and _is_ours(type(value)):
        once = isinstance(value, Node)
        if once and "_without_stored_code" in value.__dict__:
            return value
        new = {}
        for f in dataclasses.fields(value):
            was = getattr(value, f.name)
            now = with_code(was)
            if now is not was and "pickle_of" not in f.metadata:
                new[f.name] = now
        loaded = dataclasses.replace(value, **new) if new else value
        if once:  # every change of a program loads the code of the whole plan
            loaded.__dict__["_without_stored_code"] = True
        return loaded
    return value


@functools.lru_cache(maxsize=1024)
def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == __name__.partition(".")[0]


def _unpickled(value: Mapping[str, Any]) -> Any:
    try:
        return moved_names.loads(base64.b64decode(value["$pickle"]))
    except (ImportError, AttributeError) as error:  # code that moved, or is not installed here
        return Unloaded(value, "code that is not here", str(error))


def _found(value: Mapping[str, Any], guard: Guard) -> Any:
    """Create an object of a user's class that is stored by name."""
    module, _, name = value["$user"].partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        return Unloaded(value, f"a class that is not here: {value['$user']}", str(error))
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        return Unloaded(value, f"a class that is no dataclass now: {value['$user']}", repr(found))
    fields = {k: with_code(decode(v, guard)) for k, v in value["fields"].items()}
    try:
        return found(**fields)
    except TypeError as error:
        return Unloaded(value, f"a class that has other fields now: {value['$user']}", str(error))


def pickled(value: Any) -> bytes:
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # whatever the parts of a user's object raise
        raise InvalidError(
            f"{getattr(value, '__qualname__', type(value).__name__)} cannot be stored with the plan",
            detail=f"{type(error).__name__}: {error}",
            hint="it must not contain locks, files or connections: create them inside the function",
        ) from error


def _called(value: Any) -> str:
    """The name of a user's object for messages."""
    named = hasattr(value, "__qualname__") or hasattr(value, "func")  # functools.partial
    name = name_of(value).rpartition(".")[2] if named else type(value).__name__
    if name == "<lambda>":
        return "a lambda"
    return f"{name}()" if callable(value) and not isinstance(value, type) else name


def _findable(cls: type) -> bool:
    """Can another process import this class by its name?"""
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        return False
    if cls.__module__ in cloudpickle.list_registry_pickle_by_value():  # a file that was run, not imported
        return False
    return getattr(sys.modules.get(cls.__module__), cls.__qualname__.split(".")[0], None) is not None


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
