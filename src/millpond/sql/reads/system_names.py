"""Finds the relations of a query that the system provides, and gives each a plain name.

`millpond.epochs` is a system relation, `state.step.name` a state of a process step, and `DIFF(view, e1, e2)`
the changes of a view between two epochs.
Law: only what FROM and JOIN list is taken: a table or an alias named `millpond` or `state` keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import TokenType

from millpond.sql.host import EpochOrName
from millpond.sql.text.parameters import Params, with_literals
from millpond.sql.text.parse import SYSTEM_SCHEMAS, SqlFragment
from millpond.sql.text.relation_places import alias_follows, free_name, listed_from

SYSTEM, STATE = SYSTEM_SCHEMAS
DIFF = "diff"


@dataclass(frozen=True)
class SystemRead:
    """A relation of the system that a query reads.

    `path` is its name in parts; of a difference it is `diff` and the view, with the two epochs in `between`.
    """

    path: tuple[str, ...]
    called: str  # its name in the rewritten query
    when: EpochOrName = None  # of its own AS OF clause
    between: tuple[int | str, int | str] | None = None


def is_system(path: tuple[str, ...]) -> bool:
    """Does a dotted name belong to the system?"""
    first = path[0].lower()
    return (first == SYSTEM and len(path) == 2) or (first == STATE and len(path) > 2)


def system_reads(fragment: SqlFragment, params: Params) -> tuple[SqlFragment, list[SystemRead]]:
    """Give the system's relations in a query plain names; those with AS OF have one already."""
    text = fragment.text.lower()
    if not any(word in text for word in (SYSTEM, STATE, DIFF)):
        return fragment, []
    reads: dict[tuple[object, ...], SystemRead] = {}
    edits: list[tuple[int, int, str]] = []
    for place, stop, path, between in _found(fragment, params):
        key = (tuple(part.lower() for part in path), between)
        if key not in reads:
            reads[key] = SystemRead(path, _called(fragment, path, len(reads)), None, between)
        alias = "" if alias_follows(fragment, stop) else f' AS "{path[-1].replace(chr(34), chr(34) * 2)}"'
        first, last = fragment.tokens[place], fragment.tokens[stop - 1]
        edits.append((first.start, last.end + 1, f"{reads[key].called}{alias}"))
    if not reads:
        return fragment, []
    taken = [start for start, _, _ in edits]
    edits += [edit for edit in _qualified_columns(fragment, reads.values()) if edit[0] not in taken]
    return fragment.rewritten(sorted(edits)), list(reads.values())


Found = tuple[int, int, tuple[str, ...], tuple[int | str, int | str] | None]


def _found(fragment: SqlFragment, params: Params) -> Iterator[Found]:
    """Yield the place, the place after it, the name in parts and the epochs of each relation."""
    place = 0
    while place < len(fragment):
        word = fragment.tokens[place].text.lower()
        stop = place + 1
        if word in (SYSTEM, STATE) and _is_name(fragment, place) and fragment.word(place + 1) == ".":
            stop = dotted_end(fragment, place)
            path = path_of(fragment, place, stop)
            if is_system(path) and fragment.word(stop) != "(" and listed_from(fragment, stop) == place:
                yield place, stop, path, None
        elif word == DIFF and fragment.word(place + 1) == "(" and listed_from(fragment, place + 1) == place:
            inner, stop = fragment.bracket(place + 1)
            view, between = _arguments(fragment, place, with_literals(inner, params))
            yield place, stop, (DIFF, view), between
        place = stop


def _is_name(fragment: SqlFragment, place: int) -> bool:
    return fragment.tokens[place].token_type is not TokenType.STRING and fragment.word(place - 1) != "."


def dotted_end(fragment: SqlFragment, place: int) -> int:
    """Return the place after a dotted name."""
    stop = place + 1
    while fragment.word(stop) == "." and stop + 1 < len(fragment):
        stop += 2
    return stop


def path_of(fragment: SqlFragment, place: int, stop: int) -> tuple[str, ...]:
    """Return the parts of a dotted name."""
    return tuple(str(token.text) for token in fragment.tokens[place:stop:2])


def _called(fragment: SqlFragment, path: tuple[str, ...], number: int) -> str:
    plain = "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in "_".join(path))
    return free_name(fragment, f"{plain.lower()}_{number + 1}")


def _qualified_columns(fragment: SqlFragment, reads: Iterable[SystemRead]) -> Iterator[tuple[int, int, str]]:
    """Yield the edits that turn `millpond.epochs.rows` into `epochs.rows`."""
    names = {read.path[1].lower() for read in reads if read.path[0].lower() == SYSTEM}
    for place in range(len(fragment)):
        if fragment.tokens[place].text.lower() != SYSTEM or not _is_name(fragment, place):
            continue
        stop = dotted_end(fragment, place)
        if stop - place > 4 and fragment.tokens[place + 2].text.lower() in names:
            yield fragment.tokens[place].start, fragment.tokens[place + 1].end + 1, ""


def _arguments(
    fragment: SqlFragment, place: int, inner: SqlFragment
) -> tuple[str, tuple[int | str, int | str]]:
    """Return the view and the two epochs of DIFF(view, e1, e2)."""
    parts = inner.split()
    if len(parts) != 3 or not all(part.tokens for part in parts):
        fragment.fail("DIFF needs a view and two epochs", place, "for example DIFF(totals, 3, 5)")
    first = parts[0].tokens
    # Access is checked by the names in a statement, so a text or a parameter cannot name the view.
    is_name = len(first) % 2 == 1 and all(token.text == "." for token in first[1::2])
    if not is_name or any(token.token_type is TokenType.STRING for token in first):
        fragment.fail("DIFF begins with the name of a view", place, "for example DIFF(totals, 3, 5)")
    one, other = (_epoch(fragment, place, part) for part in parts[1:])
    return str(first[-1].text), (one, other)


def _epoch(fragment: SqlFragment, place: int, part: SqlFragment) -> int | str:
    token = part.tokens[0]
    if len(part.tokens) == 1 and token.token_type is TokenType.STRING:
        return str(token.text)
    if len(part.tokens) != 1 or not token.text.isdecimal():
        fragment.fail(
            "DIFF compares two epochs",
            place,
            "write numbers, or names of savepoints as 'text': DIFF(v, 3, 'monday')",
        )
    return int(token.text)
