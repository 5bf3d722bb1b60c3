"""Columns in the names of folders, as in `dt=2024-01-01/city=Oslo/a.parquet`: Hive, Spark and we write them.

Law 9: a file without one of these folders, or with a value that its column cannot hold, becomes an error row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sources.file_format import BadFileError

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # stands for NULL
_ESCAPED = re.compile("%[0-9a-fA-F]{2}")


def check_partitions(names: Sequence[str], schema: pa.Schema) -> None:
    """Refuse columns that names of folders cannot have."""
    for name in names:
        if name not in schema.names:
            raise InvalidError(
                f"there is no column {name!r} for the values in names of folders",
                detail=f"columns are {', '.join(schema.names)}",
            )
        kind = schema.field(name).type
        try:
            pa.array([None], pa.string()).cast(kind)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise InvalidError(
                f"column {name!r} is {kind}, and names of folders are text", hint="declare it as VARCHAR"
            ) from error
    if len(names) == len(schema):
        raise InvalidError("a file needs a column that is not in the names of folders")


def folder_values(path: str, names: Sequence[str], schema: pa.Schema) -> dict[str, pa.Scalar]:
    """The values of these columns; raises BadFileError.

    >>> schema = pa.schema([("dt", pa.date32()), ("city", pa.string())])
    >>> [v.as_py() for v in folder_values("dt=2024-05-01/city=a%2Fö/x.csv", ["dt", "city"], schema).values()]
    [datetime.date(2024, 5, 1), 'a/ö']
    """
    folders = [part.partition("=") for part in path.split("/")[:-1]]
    texts = {unescaped(name): value for name, equals, value in folders if equals}
    found = {}
    for name in names:
        if name not in texts:
            raise BadFileError(f"no folder {name}=… is in its path")
        text, field = texts[name], schema.field(name)
        if text == NO_VALUE:
            if not field.nullable:
                raise BadFileError(f"column {name!r} is NULL in the name of a folder")
            found[name] = pa.scalar(None, field.type)
            continue
        try:
            found[name] = pa.array([unescaped(text)], pa.string()).cast(field.type)[0]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadFileError(f"folder {name}={text}: the value is not {field.type}") from error
    return found


def with_folder_values(table: pa.Table, values: dict[str, pa.Scalar], columns: Sequence[str]) -> pa.Table:
    """The rows of a file with these values in each."""
    for name in columns:
        if name in values:
            column = pa.repeat(values[name], table.num_rows)
            table = table.append_column(name, column)
    return table.select(list(columns))


def unescaped(text: str) -> str:
    """A name without escapes: bytes of UTF-8 in hexadecimal, or single characters as Hive writes them.

    >>> unescaped("a%2Fb"), unescaped("%C3%B6"), unescaped("%F6"), unescaped("100%")
    ('a/b', 'ö', 'ö', '100%')
    """
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return _ESCAPED.sub(lambda found: chr(int(found[0][1:], 16)), text)
