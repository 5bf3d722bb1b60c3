"""Locates a pond: the stores of a backup and of a pond that is restored, and the folder of a local pond."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from millpond.errors import InvalidError
from millpond.settings import Settings
from millpond.state.store.location import is_local, uri_of
from millpond.state.store.store import Store, open_store


def backup_store(path: str | os.PathLike[str], settings: Settings, store_options: Mapping[str, Any]) -> Store:
    """The store of a backup; it has no cache, so that verification reads what is stored."""
    uri = uri_of(path)
    options = {name: value for name, value in store_options.items() if name not in ("cache", "cache_bytes")}
    return open_store(uri, **{**({"durable": settings.durable} if is_local(uri) else {}), **options})


def restore_stores(
    backup: str | os.PathLike[str],
    pond: str | os.PathLike[str],
    settings: Settings,
    store_options: Mapping[str, Any],
    backup_options: Mapping[str, Any] | None = None,
) -> tuple[Store, Store]:
    """The stores of a backup and of the pond that is restored from it.

    Without options for the backup, those of the pond apply.  If one of the two is a bucket and the other a
    folder, the options are for the bucket.
    """
    if backup_options is not None:
        return backup_store(backup, settings, backup_options), backup_store(pond, settings, store_options)
    uris = [uri_of(location) for location in (backup, pond)]
    is_mixed = len({is_local(uri) for uri in uris}) == 2
    source, target = (
        backup_store(uri, settings, {} if is_mixed and is_local(uri) else store_options) for uri in uris
    )
    return source, target


def folder_of(store: Store, stream: str) -> Path:
    """The folder of a local pond, in which rows of a stream are staged."""
    if not store.uri.startswith("file://"):
        raise InvalidError(
            f"stream {stream!r} cannot be staged in a remote pond",
            detail=store.uri,
            hint="write the DataFrame as Parquet where all executors reach it, and use FileSource",
        )
    return Path(unquote(store.uri.removeprefix("file://").partition("?")[0]))
