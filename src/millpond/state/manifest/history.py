"""Reads the manifests of a pond, and finds the newest.

Law: epoch numbers only increase.  A gap among the manifests, or a head older than one that this process has
seen, means that the pond is damaged.  If the newest manifest was deleted, a process that never saw it cannot
notice: the pond looks as it does after a crash just before that commit.
"""

from __future__ import annotations

import functools
import itertools

from millpond.errors import DataError, InvalidError
from millpond.state.manifest.manifest import Manifest, epoch_of, manifest_name
from millpond.state.store.store import MissingError, Store

PREFIX = "manifests/"
DECODED_MAX = 16  # manifests that are kept decoded; reading the changes of many views asks for the same ones


def epochs(store: Store) -> list[int]:
    return [epoch_of(name) for name in store.list(PREFIX) if name[len(PREFIX) :].isdecimal()]


def read_manifest(store: Store, epoch: int) -> Manifest:
    """Read the manifest of an epoch; it must exist."""
    name = manifest_name(epoch)
    try:
        raw = store.get(name)
    except MissingError as missing:
        raise InvalidError(
            f"epoch {epoch} is not in this pond",
            detail=_retained_epochs(store),
            hint="ask for a retained epoch, or keep more of them with retain_epochs",
            epoch=epoch,
        ) from missing
    return _decoded(epoch, raw)


def find_manifest(store: Store, epoch: int) -> Manifest | None:
    try:
        return _decoded(epoch, store.get(manifest_name(epoch)))
    except MissingError:
        return None


@functools.lru_cache(maxsize=DECODED_MAX)
def _decoded(epoch: int, raw: bytes) -> Manifest:
    name = manifest_name(epoch)
    manifest = Manifest.decode(raw, name=name)
    if manifest.epoch != epoch:
        raise DataError(
            f"{name} holds another epoch",
            detail=f"it is the manifest of epoch {manifest.epoch}",
            hint="the file was copied or renamed: restore it from a backup",
            epoch=epoch,
        )
    return manifest


def read_head(store: Store) -> Manifest | None:
    """The newest manifest, or None for a pond that does not exist yet.

    A gap in the chain, or a token below that of the parent, means that the pond is damaged.
    """
    for last_look in (False, True):
        numbers = epochs(store)
        if not numbers:
            return None
        head = read_manifest(store, numbers[-1])
        gaps = [e + 1 for e, after in itertools.pairwise((-1, *numbers)) if after != e + 1]
        gaps = [max(g, head.floor) for g in gaps]
        gaps = [g for g in gaps if g not in numbers]
        if not gaps:
            return head
        # A listing may show a gap while old manifests are being collected: list again.
        if last_look:
            raise DataError(
                f"the manifest of epoch {gaps[0]} is missing",
                detail=f"manifests exist up to epoch {numbers[-1]}, the floor is {head.floor}",
                hint="restore the file from a copy of the pond; do not delete files under manifests/",
                epoch=gaps[0],
            )
    return head


def newer_head(store: Store, known: Manifest | None) -> Manifest | None:
    """The newest manifest, found from one that was the newest before; the cost follows what is new.

    `known` must be pinned: manifests after a pinned one are not collected, so the chain has no gap.
    """
    if known is None:
        return read_head(store)
    head = known
    while (following := find_manifest(store, head.epoch + 1)) is not None:
        head = following
    if head is known and store.size(manifest_name(known.epoch)) is None:
        return read_head(store)  # it was collected long ago, and so were those after it
    return head


def require_not_older(store: Store, manifest: Manifest, seen: Manifest | None) -> None:
    """Raise DataError if the newest manifest is older than one that was seen before: that one was deleted.

    It reads the name itself, because a listing may lag.  A pond with another id was created in the same place
    and has its own epochs.
    """
    if seen is None or manifest.pond != seen.pond or manifest.epoch >= seen.epoch:
        return
    if store.size(manifest_name(seen.epoch)) is None:
        raise DataError(
            f"the manifest of epoch {seen.epoch} is missing",
            detail=f"this process has read it, and the newest manifest is now of epoch {manifest.epoch}",
            hint="restore the file from a copy of the pond; do not delete files under manifests/",
            epoch=seen.epoch,
        )


def _retained_epochs(store: Store) -> str:
    numbers = epochs(store)
    return f"epochs {numbers[0]} to {numbers[-1]} are retained" if numbers else "the pond has no epochs"
