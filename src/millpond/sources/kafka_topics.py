"""Reads all topics whose names match a pattern, also those that are created later.

Law: each topic is read as `KafkaSource` reads it, and has its own position.
Topics that a pond finds when it starts begin where `start` says; those that appear later are read from their
beginning.
A topic that was deleted is left out, and a warning names it once; one that is deleted and created again is an
error (law 9).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa

from millpond.errors import DataError, InvalidError
from millpond.operators.source_traits import KeepsHistory, PartitionLag, ReportsLag
from millpond.sources import kafka_client
from millpond.sources.kafka import KafkaSource, UnreadOffsets
from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec

_OURS = "millpond.progress."  # topics in which sinks store their progress
log = logging.getLogger("millpond.engine")


@dataclass(frozen=True)
class KafkaTopicsSource(KeepsHistory, ReportsLag):
    """All topics with a name that matches `pattern` completely; `source` says how each is read.

    >>> source = KafkaSource("localhost:9092", "any", {"n": int})
    >>> KafkaTopicsSource(source, "shop[.].*").schema.names
    ['n']
    """

    source: KafkaSource  # its topic is ignored
    pattern: str
    _gone: set[str] = field(default_factory=set, compare=False, repr=False, metadata={"durable": False})

    append_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise InvalidError(f"not a pattern of topics: {self.pattern!r}", detail=str(error)) from error

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def table(self, step: str) -> TableSpec | None:
        return None

    def check(self) -> None:
        """Check that the cluster answers; topics may come later."""
        self._names()

    # -- in the driver --------------------------------------------------------

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        known = _topics(position)
        splits: list[Split] = []
        if position is None:
            splits.append(Split({"topics": []}, 0, 0))  # from now on topics are new
        unread: dict[str, UnreadOffsets] = {}
        for name in self._there(known):
            found = self._read_of(name, position).unread(known.get(name))
            splits += [_tagged(name, split) for split in found.begin]
            unread[name] = found
        there = sum(found.rows for found in unread.values())
        for name, found in unread.items():
            share = -(-found.rows * min(max_rows, there) // max(1, there))
            if share:
                splits += [_tagged(name, s) for s in self._of(name).splits(found.ranges, share)]
        left = there - sum(split.rows for split in splits)
        return Poll(tuple(splits), backlog_rows=left, independent=True)

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        if position is None and not admitted:
            return Advance(position)
        known = _topics(position)
        by_topic: dict[str, list[Split]] = {}
        for split in admitted:
            if "topic" in split.what:
                by_topic.setdefault(split.what["topic"], []).append(_plain(split))
        for name, splits in by_topic.items():
            known[name] = self._of(name).advance(known.get(name), splits, ()).position
        return Advance({"topics": {name: known[name] for name in sorted(known)}})

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        for name, at in sorted(_topics(position).items()):
            for split in self._of(name).history(at, None, rows):
                yield _tagged(name, split)

    def lag(self, position: Any) -> list[PartitionLag]:
        known = _topics(position)
        return [
            replace(one, partition=f"{name}/{one.partition}")
            for name in self._there(known)
            for one in self._of(name).lag(known.get(name))
        ]

    # -- in a task ------------------------------------------------------------

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        if "topic" in split.what:
            yield from self._of(split.what["topic"]).read(_plain(split), columns)

    # -- topics ---------------------------------------------------------------

    def _of(self, name: str) -> KafkaSource:
        return replace(self.source, topic=name)

    def _read_of(self, name: str, position: Any) -> KafkaSource:
        """The source of a topic; one that appears later is read from its beginning."""
        found = self._of(name)
        return found if position is None else replace(found, start="earliest")

    def _there(self, known: Mapping[str, Any]) -> list[str]:
        """The topics to read."""
        names = self._names()
        for gone in sorted(known.keys() - set(names) - self._gone):
            self._gone.add(gone)
            log.warning("topic %r of pattern %r was deleted, and is no longer read", gone, self.pattern)
        return names

    def _names(self) -> list[str]:
        names = kafka_client.topic_names(self.source.cluster)
        wanted = re.compile(self.pattern)
        return [n for n in names if wanted.fullmatch(n) and not n.startswith(("__", _OURS))]


def _topics(position: Any) -> dict[str, Any]:
    """By topic: its position."""
    if position is None:
        return {}
    if not isinstance(position, dict) or {*position} != {"topics"}:
        raise DataError(
            "the position is not one of several topics",
            hint="the step read another kind of source before; give this one another name",
        )
    return dict(position["topics"])


def _tagged(name: str, split: Split) -> Split:
    partition = f"{name}/{split.partition}" if split.partition else ""
    return replace(split, what={"topic": name, **split.what}, partition=partition)


def _plain(split: Split) -> Split:
    return replace(split, what={name: value for name, value in split.what.items() if name != "topic"})
