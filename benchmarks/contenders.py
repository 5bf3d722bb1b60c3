"""Who takes part in a benchmark, and who of them is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Of = TypeVar("Of")


@dataclass(frozen=True)
class Contender:
    """A module that runs one system, with the arguments that make it this contender."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()


def choose(there: Mapping[str, Of], names: Sequence[str], millpond: bool) -> list[Of]:
    """Those named, and Millpond's own if it takes part, in the order in which they stand there.

    >>> choose({"millpond": 1, "millpond-batch": 2, "flink": 3, "spark": 4}, ["spark"], millpond=True)
    [1, 2, 4]
    """
    require_known("contender", names, there)
    return [one for name, one in there.items() if name in names or (millpond and name.startswith("millpond"))]


def require_known(kind: str, names: Iterable[str], there: Iterable[str]) -> None:
    """
    >>> require_known("query", ["q1", "q99"], ["q0", "q1"])
    Traceback (most recent call last):
    ValueError: unknown query q99; there are q0, q1
    """
    known = list(there)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"unknown {kind} {', '.join(unknown)}; there are {', '.join(known)}")
