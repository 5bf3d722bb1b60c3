"""The dict methods that both kinds of maps share, built on get, put, remove and keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class LikeDict(ABC):
    """Adds the other methods of a dict to a map that has the abstract ones."""

    __slots__ = ()

    @abstractmethod
    def get(self, entry: Any, default: Any = None) -> Any: ...

    @abstractmethod
    def put(self, entry: Any, value: Any) -> None: ...

    @abstractmethod
    def remove(self, entry: Any) -> None: ...

    @abstractmethod
    def keys(self) -> Iterable[Any]: ...

    def pop(self, entry: Any, default: Any = None) -> Any:
        value = self.get(entry, default)
        self.remove(entry)
        return value

    def setdefault(self, entry: Any, default: Any) -> Any:
        if self.get(entry) is None:
            self.put(entry, default)
        return self.get(entry)

    def update(self, other: Mapping[Any, Any]) -> None:
        for entry, value in other.items():
            self.put(entry, value)

    def clear(self) -> None:
        for entry in list(self.keys()):
            self.remove(entry)
