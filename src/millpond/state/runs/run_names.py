"""Formats and parses the names of run files; no other module does.

    runs/<token>/<epoch>-<writer>-<number>-<unique>

The writer is the level of a task, or one of the letters below.  The number distinguishes the files of one
writer: it is the number of the task, or of the unit of a merge.  The last component is random, so that two
attempts never write the same file; for the plan of a backfill and for a copied run it is a digest.

Law: whether the collector may delete a file that no manifest names depends only on its token and epoch.
"""

from __future__ import annotations

import os

from millpond.errors import InternalError
from millpond.state.store.store import Data, Put, Store

PREFIX = "runs/"

MERGE = "c"  # compaction
COORDINATOR = "d"  # rows that the coordinator writes, such as error rows
PLAN = "p"  # the plan of a backfill: not a run, but collected like one
REWRITE = "w"  # state rewritten by a migration or a bootstrap
COPY = "f"  # a run of a fork's parent, copied by a backup

_FORKED = "!"  # separates the address of another pond from the name of a file in it


def new_name(token: int, epoch: int, writer: int | str, number: int = 0) -> str:
    """A name that no other file has."""
    return _name(token, epoch, writer, number, os.urandom(8).hex())


def plan_name(token: int, epoch: int, digest: str) -> str:
    """The name of a plan that only a backfill needs."""
    return _name(token, epoch, PLAN, 0, digest)


def copy_name(digest: str) -> str:
    """The name in a backup of a run that belongs to another pond.

    >>> copy_name("a1b2")
    'runs/0/0000000000000000-f-0-a1b2'
    """
    return _name(0, 0, COPY, 0, digest)


def _name(token: int, epoch: int, writer: int | str, number: int, unique: str) -> str:
    return f"{epoch_prefix(token, epoch)}-{writer}-{number}-{unique}"


def token_prefix(token: int) -> str:
    """The prefix of all names written under a token."""
    return f"{PREFIX}{token}/"


def epoch_prefix(token: int, epoch: int) -> str:
    """The prefix of all names written for an epoch under a token."""
    return f"{token_prefix(token)}{epoch:016d}"


def token_and_epoch(name: str) -> tuple[int, int]:
    """
    >>> token_and_epoch("runs/3/0000000000000007-1-2-a1b2")
    (3, 7)
    """
    _, token, rest = name.split("/", 2)
    return int(token), int(rest.split("-", 1)[0])


def is_merge(name: str) -> bool:
    """Did a compaction write this file?"""
    return f"-{MERGE}-" in name


def is_plan(name: str) -> bool:
    """Is this the name of a plan that only a backfill needs?"""
    return f"-{PLAN}-0-" in name


def in_pond(uri: str, name: str) -> str:
    """The name of a file of another pond, as a fork of that pond uses it.

    >>> in_pond("/data/parent", "runs/1/x"), split_pond("/data/parent!runs/1/x"), split_pond("runs/1/x")
    ('/data/parent!runs/1/x', ('/data/parent', 'runs/1/x'), ('', 'runs/1/x'))
    """
    return f"{uri}{_FORKED}{name}"


def split_pond(name: str) -> tuple[str, str]:
    """(the address of another pond, or "" for this one; the name of the file in it)"""
    uri, _, own = name.rpartition(_FORKED)
    return uri, own


def is_foreign(name: str) -> bool:
    """Does the file belong to the pond that this one was forked from?"""
    return _FORKED in name


def put_run(store: Store, name: str, data: Data) -> None:
    """Write a file under a new name; an existing file of that name is a bug."""
    if store.put_new(name, data) is not Put.WON:
        raise InternalError("a random run name was already taken", detail=name)
