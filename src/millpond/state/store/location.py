"""Locates the store of a pond: the uri of a path, and the options with which its store is opened."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from millpond.errors import InvalidError
from millpond.settings import Settings
from millpond.state.store.disk_cache import FOLDER_VARIABLE, folder_of_host
from millpond.state.store.local_store import make_private
from millpond.valid_text import require_text


def uri_of(path: str | os.PathLike[str]) -> str:
    """
    >>> uri_of("s3://bucket/pond"), uri_of("/ponds/a b")
    ('s3://bucket/pond', 'file:///ponds/a%20b')
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InvalidError(
            "the location of a pond must be a path or a uri",
            detail=f"got {path!r}",
            hint='"my-pond", "/data/pond" or "s3://bucket/pond"',
        )
    if "\0" in os.fspath(path):
        raise InvalidError("the location of a pond contains a NUL character", detail=repr(os.fspath(path)))
    if "://" in str(path):
        return require_text(str(path), "the address of a pond")
    try:
        return Path(path).expanduser().absolute().as_uri()
    except UnicodeEncodeError:
        require_text(str(path), "the path of a pond")
        raise


def store_options(uri: str, settings: Settings, options: Mapping[str, Any]) -> dict[str, Any]:
    """Store options: a local folder is synced as the settings say; a remote store gets a disk cache."""
    if not isinstance(options, Mapping):
        raise InvalidError("store_options must be a dict", detail=f"got {options!r}")
    if is_local(uri):
        return {"durable": settings.durable, **options}
    if uri.startswith("memory:"):
        return dict(options)
    name = hashlib.blake2b(uri.encode(), digest_size=8).hexdigest()
    waits = {"wait_ms": settings.store_wait_ms}
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millpond" / name
    if FOLDER_VARIABLE in os.environ:
        folder = folder_of_host(folder)
    try:
        make_private(folder)
    except OSError:  # the home folder is not writable: without a cache, files are fetched each time
        return {**waits, **options}
    return {**waits, "cache": str(folder), "cache_bytes": settings.cache_bytes, **options}


def options_for(uri: str, known: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a store that also open another one: those of a bucket for a bucket of the same kind.

    Options that the other uri states itself are not repeated; its cache is in a folder of this host.

    >>> options_for("s3://b/fork", "s3://b/pond", {"region": "eu", "cache": "/c", "secret_access_key": "x"})
    {'region': 'eu', 'secret_access_key': 'x'}
    >>> options_for("file:///fork", "s3://b/pond", {"region": "eu"})
    {}
    """
    scheme, _, rest = uri.partition("://")
    if scheme in ("file", "memory") or known.partition("://")[0].removesuffix("a") != scheme.removesuffix(
        "a"
    ):
        return {}
    stated = dict(parse_qsl(rest.partition("?")[2]))
    unstated = {name: value for name, value in options.items() if name not in stated}
    for name in ("cache", "cache_bytes"):
        unstated.pop(name, None)
    if "cache" in stated:
        unstated["cache"] = str(folder_of_host(Path(stated["cache"])))
    return unstated


def is_local(uri: str) -> bool:
    return uri.startswith("file:")
