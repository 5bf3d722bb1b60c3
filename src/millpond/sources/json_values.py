"""Parses JSON objects that arrive one by one, such as messages.

Law 9: each value becomes a row or is reported as bad, like the lines of a file.
All values are parsed at once; only if that fails are the bad ones searched for.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.sources.text_format import BadLinesError, Lines, halved


def parse_values(parser: Lines, values: Sequence[bytes]) -> tuple[list[pa.Table], list[tuple[int, str]]]:
    """The rows of the good values in order, and the bad ones: (index, reason).

    >>> from millpond.sources.text_format import JsonLines
    >>> parser = JsonLines(pa.schema([("k", pa.int64())]))
    >>> good, bad = parse_values(parser, [b'{"k":1}', b'{"k":', b'{ "k":\\n2}'])
    >>> [row["k"] for table in good for row in table.to_pylist()], [index for index, _ in bad]
    ([1, 2], [1])
    """
    if not values:
        return [], []
    data = b"\n".join(values) + b"\n"
    if data.count(b"\n") == len(values):
        try:
            return [parser.parse(data, len(values))], []
        except BadLinesError:
            pass  # some are bad: they are found below
    # A line end in JSON is between two tokens, where a space means the same.
    lines = [parser.clean(value.replace(b"\n", b" ").replace(b"\r", b" ")) for value in values]
    filled = [index for index, line in enumerate(lines) if line]
    good, bad = halved(parser, [lines[index] for index in filled])
    rejected = [(filled[index], reason) for index, reason in bad]
    rejected += [(index, "there is no value") for index, line in enumerate(lines) if not line]
    return good, sorted(rejected)
