"""JSON objects that come one by one, as rows.

Law 9: each value becomes a row or is told as bad, as lines of a file are.  All are
parsed at once; only where that fails are the bad ones looked for.
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
            pass  # some are bad: they are looked for below
    # A line end in JSON stands between two tokens, where a space is as good.
    lines = [parser.clean(value.replace(b"\n", b" ").replace(b"\r", b" ")) for value in values]
    filled = [index for index, line in enumerate(lines) if line]
    good, bad = halved(parser, [lines[index] for index in filled])
    told = [(filled[index], reason) for index, reason in bad]
    told += [(index, "there is no value") for index, line in enumerate(lines) if not line]
    return good, sorted(told)
