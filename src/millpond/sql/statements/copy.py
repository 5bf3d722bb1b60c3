"""COPY … FROM STDIN and COPY … TO STDOUT: rows as text, in one inbox entry or in one result.

`pond.sql(text, stdin=…)` gives what FROM STDIN reads.  The result of TO STDOUT is one text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.sql.copy.copied_input import as_table, copied_columns, copied_rows
from millpond.sql.copy.copied_output import copied_lines, header_line
from millpond.sql.copy.copy_statement import CopyStatement, parse_copy, query_of
from millpond.sql.dml.copied_rows import insert_texts
from millpond.sql.result import Result
from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import SqlFragment

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession


def run(session: SqlSession, fragment: SqlFragment, params: Params) -> Result:
    copy = parse_copy(fragment)
    if copy.format == "binary":
        raise InvalidError(
            "COPY with FORMAT binary is for PostgreSQL clients", hint="pond.insert takes Arrow tables"
        )
    return _read(session, copy) if copy.into else _write(session, copy, params)


def _read(session: SqlSession, copy: CopyStatement) -> Result:
    assert copy.table is not None
    data = session.take_stdin()
    if data is None:
        raise InvalidError("COPY … FROM STDIN needs rows", hint="pond.sql(text, stdin=file, text or bytes)")
    names, _ = copied_columns(session, copy.table, copy.columns)
    given = as_table(copied_rows(data, copy, names), names)
    if not given.num_rows:
        return Result.said("COPY 0")
    return insert_texts(session, copy.table, given).under("COPY")


def _write(session: SqlSession, copy: CopyStatement, params: Params) -> Result:
    found = session.run_one(query_of(copy), params)
    table = found.arrow()
    text = header_line(found.columns, copy) if copy.header else ""
    text += "".join("".join(lines.to_pylist()) for lines in copied_lines(table, found.types, copy))
    whole = pa.table({"copy": pa.array([text], pa.string())})
    return Result.of_rows(["copy"], ["VARCHAR"], whole, found.epoch).under(f"COPY {table.num_rows}")
