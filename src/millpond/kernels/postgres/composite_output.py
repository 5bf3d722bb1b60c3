"""The text of arrays and records as PostgreSQL writes it."""

from __future__ import annotations

import re
from typing import Any

from millpond.kernels.postgres.json_text import JsonObject, read_pairs, shown
from millpond.kernels.postgres.rows import row_function
from millpond.kernels.postgres.type_names import TypeName, type_named

_ARRAY_QUOTED = re.compile(r'["\\{},\s]|\A\Z|\Anull\Z', re.IGNORECASE)
_RECORD_QUOTED = re.compile(r'["\\(),\s]|\A\Z')


@row_function("pg.composite_out.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def composite_out(text: str, kind: str) -> str:
    return composite_text(read_pairs(text), type_named(kind)) or ""


def composite_text(value: Any, kind: TypeName) -> str | None:
    """The text of a value that DuckDB wrote as JSON."""
    if value is None:
        return None
    if kind.is_list:
        inner = kind.parts[0][1]
        return "{" + ",".join(element_text(composite_text(v, inner), inner.is_list) for v in value) + "}"
    if kind.is_record:
        fields = [v for _, v in value] if isinstance(value, JsonObject) else value
        texts = (composite_text(v, k) for v, (_, k) in zip(fields, kind.parts, strict=True))
        return f"({','.join(map(field_text, texts))})"
    return shown(value, kind)


def element_text(text: str | None, is_array: bool) -> str:
    """An element of an array, in quotes where it needs them."""
    if text is None:
        return "NULL"
    if is_array or not _ARRAY_QUOTED.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def field_text(text: str | None) -> str:
    """A field of a record, in quotes where it needs them."""
    if text is None:
        return ""
    if not _RECORD_QUOTED.search(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'
