"""Locates a pond: the uri of a path, how its store is opened, and its folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from millpond.errors import InvalidError
from millpond.settings import Settings
from millpond.state.store.local_store import make_private
from millpond.state.store.store import Store, open_store
from millpond.valid_text import require_text


def uri_of(path: str | os.PathLike[str]) -> str:
    """
    >>> uri_of("s3://bucket/pond"), uri_of("/ponds/a b")
    ('s3://bucket/pond', 'file:///ponds/a%20b')
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InvalidError(
            "the place of a pond must be a path or a uri",
            detail=f"got {path!r}",
            hint='"my-pond", "/data/pond" or "s3://bucket/pond"',
        )
    if "\0" in os.fspath(path):
        raise InvalidError("the place of a pond contains a NUL character", detail=repr(os.fspath(path)))
    if "://" in str(path):
        return require_text(str(path), "the address of a pond")
    try:
        return Path(path).expanduser().absolute().as_uri()
    except UnicodeEncodeError:
        require_text(str(path), "the path of a pond")
        raise


def store_options(uri: str, settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Store options: a local folder is synced as the settings say; a remote store gets a disk cache."""
    if not isinstance(given, Mapping):
        raise InvalidError("store_options must be a dict", detail=f"got {given!r}")
    if is_local(uri):
        return {"durable": settings.durable, **given}
    if uri.startswith("memory:"):
        return dict(given)
    name = hashlib.blake2b(uri.encode(), digest_size=8).hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millpond" / name
    try:
        make_private(folder)
    except OSError:  # the home folder is not writable: without a cache, files are fetched each time
        return dict(given)
    return {"cache": str(folder), "cache_bytes": settings.cache_bytes, **given}


def backup_store(path: str | os.PathLike[str], settings: Settings, given: Mapping[str, Any]) -> Store:
    """The store of a backup; it has no cache, so that verification reads what is stored."""
    uri = uri_of(path)
    options = {name: value for name, value in given.items() if name not in ("cache", "cache_bytes")}
    return open_store(uri, **{**({"durable": settings.durable} if is_local(uri) else {}), **options})


def restore_stores(
    backup: str | os.PathLike[str],
    pond: str | os.PathLike[str],
    settings: Settings,
    given: Mapping[str, Any],
    given_for_backup: Mapping[str, Any] | None = None,
) -> tuple[Store, Store]:
    """The stores of a backup and of the pond that is restored from it.

    Without options for the backup, those of the pond apply.  If one of the two is a bucket and the other a
    folder, the options are for the bucket.
    """
    if given_for_backup is not None:
        return backup_store(backup, settings, given_for_backup), backup_store(pond, settings, given)
    uris = [uri_of(location) for location in (backup, pond)]
    is_mixed = len({is_local(uri) for uri in uris}) == 2
    source, target = (
        backup_store(uri, settings, {} if is_mixed and is_local(uri) else given) for uri in uris
    )
    return source, target


def is_local(uri: str) -> bool:
    return uri.startswith("file:")


def folder_of(store: Store, stream: str) -> Path:
    """The folder of a local pond, in which rows of a stream are staged."""
    if not store.uri.startswith("file://"):
        raise InvalidError(
            f"stream {stream!r} cannot be staged in a remote pond",
            detail=store.uri,
            hint="write the DataFrame as Parquet where all executors reach it, and use FileSource",
        )
    return Path(unquote(store.uri.removeprefix("file://").partition("?")[0]))
