"""What UPDATE, MERGE and ON CONFLICT assign to columns whose declared type asks something of their values."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.plan.objects import SqlColumn, SqlObject
from millpond.sql.binding.declared_types import as_declared
from millpond.sql.text.parse import SqlFragment

_ENDS = ("FROM", "WHERE", "RETURNING", "WHEN")


def with_declared(fragment: SqlFragment, found: SqlObject) -> SqlFragment:
    """The same change, whose SET assigns what its columns store of each value."""
    columns = {c.name.lower(): c for c in found.columns if c.declared is not None}
    if not columns:
        return fragment
    edits = [edit for start, end in _lists(fragment) for edit in _edits(fragment.part(start, end), columns)]
    return fragment.rewritten(edits) if edits else fragment


def _lists(fragment: SqlFragment) -> Iterator[tuple[int, int]]:
    """The places behind each SET, and of the end of its list."""
    start, cases = None, 0
    for place in fragment.outside():
        word = fragment.word(place)
        cases += (word == "CASE") - (word == "END")
        if word == "SET" and start is None:
            start = place + 1
        elif start is not None and not cases and word in _ENDS and fragment.word(place - 1) != "DISTINCT":
            yield start, place
            start = None
    if start is not None:
        yield start, len(fragment)


def _edits(listed: SqlFragment, columns: dict[str, SqlColumn]) -> Iterator[tuple[int, int, str]]:
    for one in listed.split():
        equals = one.find("=")
        if equals is None:
            continue
        value = one.part(equals + 1)
        if one.has(0, "(") and value.has(0, "("):
            names, _ = one.bracket(0)
            values, _ = value.bracket(0)
            for name, each in zip(names.split(), values.split(), strict=False):
                yield from _edit(name, each, columns)
        else:
            yield from _edit(one.part(0, equals), value, columns)


def _edit(
    name: SqlFragment, value: SqlFragment, columns: dict[str, SqlColumn]
) -> Iterator[tuple[int, int, str]]:
    column = columns.get(name.tokens[-1].text.lower()) if name.tokens else None
    if column is not None and value.tokens and not value.has(0, "DEFAULT"):
        yield value.start, value.tokens[-1].end + 1, as_declared(column, value.sql)
