"""Which statements of a client are executed together: changes of rows that follow each other.

Law: the changes of one text, one pipeline or one batch of parameters are executed in one epoch or not at all,
as far as they follow each other.  It is the same for all protocols.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from millpond.sql.text.parameters import Params
from millpond.sql.text.parse import SqlFragment

VERBS = ("INSERT", "UPDATE", "DELETE", "MERGE")
TOGETHER_MAX = 5000  # statements; more are sent in groups of that size

Asked = tuple[SqlFragment, Params]  # a statement and its parameters


def joins(fragment: SqlFragment | None) -> bool:
    """Is this a change that gives no rows?"""
    return fragment is not None and fragment.word(0) in VERBS and fragment.find("RETURNING") is None


def leading_changes(asked: Sequence[Asked], start: int = 0) -> Sequence[Asked]:
    """The changes from a place on that are executed together; empty if there are not two of them."""
    ahead = asked[start : start + TOGETHER_MAX]
    found = list(itertools.takewhile(lambda one: joins(one[0]), ahead))
    return found if len(found) > 1 else ()
