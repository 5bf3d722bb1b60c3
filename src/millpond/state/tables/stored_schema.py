"""Turns a schema into the one that a state table stores."""

from __future__ import annotations

import pyarrow as pa


def stored(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionary and run-end encodings, which tables do not store."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            field = field.with_type(kind.value_type)
        fields.append(field)
    return pa.schema(fields)
