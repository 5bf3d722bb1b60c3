"""What things are called by now: a case names views and columns as they were made, a pond as they were renamed.

The engines that answer in batch hear nothing of other names: whatever a thing is called, its rows are the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_WORD = re.compile(r"'(?:[^']|'')*'|\b\w+\b")


@dataclass
class Names:
    now: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Names:
        return Names(dict(self.now))

    def of(self, name: str) -> str:
        return self.now.get(name, name)

    def spoken(self, text: str) -> str:
        """A text of the case as the pond understands it.

        >>> Names({"a": "b"}).spoken("SELECT x.a, 'a' FROM a AS aa")
        "SELECT x.b, 'a' FROM b AS aa"
        """
        return _WORD.sub(lambda word: self.of(word[0]), text)

    def swap(self, one: str, other: str) -> None:
        self.now[one], self.now[other] = self.of(other), self.of(one)
