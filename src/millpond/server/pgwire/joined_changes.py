"""Changes that follow each other in a pipeline, or in one text: they are sent together.

Law: the changes between two Sync messages, or of one text, are executed in one epoch or not at all, as far as
they follow each other.  Answers keep their order: what comes behind a change waits for its outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millpond.server.change_groups import TOGETHER_MAX
from millpond.server.pgwire.messages import command_complete
from millpond.sql.text.parse import SqlFragment

Change = tuple[SqlFragment, Sequence[Any]]


def rolls_back(fragment: SqlFragment | None) -> bool:
    return fragment is not None and fragment.word(0) in ("ROLLBACK", "ABORT") and "TO" not in fragment.words


class JoinedChanges:
    """The changes of a pipeline that were not sent yet, and the answers that wait for them."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._answers: list[bytes | None] = []  # None stands for the outcome of the next change

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def is_full(self) -> bool:
        return len(self.changes) >= TOGETHER_MAX

    def add(self, change: Change) -> None:
        self.changes.append(change)
        self._answers.append(None)

    def put(self, answer: bytes) -> None:
        """An answer that comes behind the changes so far."""
        self._answers.append(answer)

    def clear(self) -> None:
        self.changes, self._answers = [], []

    def discarded(self) -> bytes:
        """Forget the changes; the answers that are not about their outcomes."""
        left = b"".join(answer for answer in self._answers if answer is not None)
        self.clear()
        return left

    def answers(self, tags: Sequence[str]) -> bytes:
        """All answers in order, with the tags of the changes.

        >>> joined = JoinedChanges()
        >>> for answer in (b"1", b"2"): joined.changes.append(None); joined._answers += [None, answer]
        >>> joined.answers(["INSERT 0 1", "DELETE 2"]).count(b"INSERT 0 1")
        1
        """
        coming = iter(tags)
        return b"".join(
            command_complete(next(coming)) if answer is None else answer for answer in self._answers
        )
