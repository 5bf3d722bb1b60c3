"""The lines of COPY … TO STDOUT, as text or CSV, put together column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millpond.sql.copy.copy_statement import CopyStatement
from millpond.sql.copy.text_format import around, text_column
from millpond.sql.pg_catalog.pg_types import column_type

BATCH_ROWS = 8192


def copied_lines(table: pa.Table, types: Sequence[str], copy: CopyStatement) -> Iterator[pa.Array]:
    """The rows as lines, a few thousand at a time."""
    shown = [column_type(t) for t in types]
    forced = [not copy.force_quote.isdisjoint((name.lower(), "*")) for name in table.column_names]
    for batch in batches(table):
        parts: list[pa.Array] = []
        for values, kind, how, always in zip(batch.columns, types, shown, forced, strict=True):
            text = pc.cast(text_column(values, kind, how), pa.large_string())
            made = _in_csv(text, copy, always) if copy.format == "csv" else _escaped(text, copy.delimiter)
            parts.append(pc.fill_null(made, copy.null))
        yield _lines(parts, copy.delimiter, batch.num_rows)


def header_line(names: Sequence[str], copy: CopyStatement) -> str:
    """The line with the names of the columns."""
    texts = pa.array(list(names), pa.large_string())
    made = _in_csv(texts, copy, False) if copy.format == "csv" else _escaped(texts, copy.delimiter)
    return copy.delimiter.join(made.to_pylist()) + "\n"


def _in_csv(text: pa.Array, copy: CopyStatement, always: bool) -> pa.Array:
    """A value is quoted where that is needed, or always."""
    quote, escape = copy.quote, copy.escape
    special = "[" + "".join("\\" + sign for sign in (copy.delimiter, quote)) + "\\n\\r]"
    inside = text if escape == quote else pc.replace_substring(text, escape, escape * 2)
    quoted = around(quote, pc.replace_substring(inside, quote, escape + quote), quote)
    if always:
        return quoted
    needs = pc.or_(pc.match_substring_regex(text, special), pc.equal(text, copy.null))
    return pc.if_else(needs, quoted, text)


def _escaped(text: pa.Array, delimiter: str) -> pa.Array:
    if pc.any(pc.match_substring_regex(text, "[\\\\\\n\\r\\t\\" + delimiter + "]")).as_py():
        text = pc.replace_substring(text, "\\", "\\\\")
        for sign, shown in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            text = pc.replace_substring(text, sign, shown)
        if delimiter not in "\t\n\r\\":
            text = pc.replace_substring(text, delimiter, "\\" + delimiter)
    return text


def _lines(parts: list[pa.Array], delimiter: str, rows: int) -> pa.Array:
    if not parts:
        return pa.array(["\n"] * rows, pa.large_string())
    wide = [pc.cast(part, pa.large_string()) for part in parts]
    line = wide[0]
    if len(wide) > 1:
        line = pc.binary_join_element_wise(*wide, pa.scalar(delimiter, pa.large_string()))
    return around("", line, "\n")


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        if batch.num_rows:
            yield batch
