"""Functions of SQL dialects that DuckDB cannot express: vectorised code over Arrow columns, known by name.

Law: a name with its version has one meaning for ever, so that a retracted row has the result it had when it
was inserted.  A stored view contains only the name (`"pg.to_char.1"`); every process that runs its kernels
finds the code here, and nothing is unpickled.  To change what a function returns, add the next version.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from millpond.identity import one_chunk

# The modules that define native functions, by the prefix of their names; imported when a text names one.
_MODULES: dict[str, tuple[str, ...]] = {
    "pg": tuple(
        f"millpond.kernels.postgres.{name}"
        for name in (
            *("text_functions", "bytea_functions", "text_output", "composite_output", "regular_expressions"),
            *("time_to_text", "time_from_text", "number_formats", "time_fields", "intervals"),
            *("json_functions", "jsonb_changes", "json_paths", "array_text", "math_functions", "numerics"),
            *("text_of_values", "zoned_texts", "time_casts", "jsonb_order"),
        )
    ),
    "spark": tuple(
        f"millpond.kernels.spark.{name}"
        for name in (
            *("binaries", "bitmaps", "documents", "json_to_values", "values_to_json", "hashes", "numbers"),
            *("patterns", "similarity", "texts", "times", "type_text", "nested_hashes"),
            *("csv_values", "schemas", "vectors", "nested_texts", "number_formats"),
            *("charsets", "struct_order"),
        )
    ),
}
_CALLED = re.compile(r'"((pg|spark)\.\w+\.\d+)"')
_loaded: set[str] = set()
_known: dict[str, NativeFunction] = {}


@dataclass(frozen=True)
class NativeFunction:
    """One function: it takes and returns Arrow arrays of equal length, NULLs included."""

    name: str
    takes: tuple[str, ...]  # DuckDB's types
    gives: str
    code: Callable[..., pa.Array]

    @property
    def sleeps(self) -> bool:
        return False

    def __call__(self, *columns: pa.ChunkedArray) -> pa.Array:
        return self.code(*(one_chunk(column) for column in columns))


def native(
    name: str, takes: tuple[str, ...], gives: str
) -> Callable[[Callable[..., pa.Array]], NativeFunction]:
    """Decorate the code of a native function; a row that it refuses is reported by `duck.RowFailure`."""

    def define(code: Callable[..., pa.Array]) -> NativeFunction:
        assert name not in _known, name
        found = _known[name] = NativeFunction(name, takes, gives, code)
        return found

    return define


def named_in(sql: str) -> Iterator[NativeFunction]:
    """The native functions that a text names."""
    for name, prefix in _CALLED.findall(sql) if '"pg.' in sql or '"spark.' in sql else ():
        for module in () if prefix in _loaded else _MODULES[prefix]:
            importlib.import_module(module)
        _loaded.add(prefix)
        if name in _known:
            yield _known[name]
