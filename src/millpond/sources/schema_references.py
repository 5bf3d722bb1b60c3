"""Puts the schemas to which an Avro schema refers into it, so that it can be read by itself.

Avro defines a type where it first stands, and names it afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NESTED = ("record", "error", "enum", "fixed")


def inlined(text: str, named: Mapping[str, str]) -> str:
    """The schema with each of the named ones in the place where it is first used.

    >>> money = '{"type": "fixed", "name": "shop.Money", "size": 8}'
    >>> inlined('{"type": "record", "name": "shop.Bid", "fields": [{"name": "m", "type": "Money"}]}',
    ...         {"shop.Money": money})  # doctest: +NORMALIZE_WHITESPACE
    '{"type": "record", "name": "shop.Bid", "fields": [{"name": "m",
      "type": {"type": "fixed", "name": "shop.Money", "size": 8}}]}'
    """
    return json.dumps(
        _Inliner({name: json.loads(found) for name, found in named.items()}).walk(json.loads(text), "")
    )


class _Inliner:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = dict(named)
        self._defined: set[str] = set()

    def walk(self, schema: Any, space: str) -> Any:
        """A schema in a namespace, with named types that are not yet defined in their places."""
        if isinstance(schema, list):
            return [self.walk(one, space) for one in schema]
        if isinstance(schema, str):
            return self._type(schema, space)
        kind = schema.get("type")
        if kind in _NESTED:
            name = _full(schema["name"], schema.get("namespace", space))
            self._defined.add(name)
            inner = name.rpartition(".")[0]
            if "fields" in schema:
                fields = [{**field, "type": self.walk(field["type"], inner)} for field in schema["fields"]]
                return {**schema, "fields": fields}
            return schema
        for part in ("items", "values", "type"):
            if part in schema and not (part == "type" and kind in ("array", "map")):
                schema = {**schema, part: self.walk(schema[part], space)}
        return schema

    def _type(self, name: str, space: str) -> Any:
        for full in (_full(name, space), name):
            if full in self._defined:
                return full
            if full in self._named:
                # The definition has a namespace of its own, or none.
                found = self._named[full]
                return self.walk(found, "") if isinstance(found, dict | list) else found
        return name


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
