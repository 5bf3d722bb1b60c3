"""Lists the objects of a bucket again at a cost that follows the new ones.

Law: an object whose name comes after the names of all known ones is seen by the next listing, which asks the
store only for names after the last one (`start-after`).  Others, and objects that were deleted or written
again, are seen when everything is listed again; the pause until then is long only if listing takes long.
Few objects are listed completely each time.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import obstore
from obstore import exceptions as raised
from obstore.store import S3Store

from millpond.sources.local_listing import Found
from millpond.state.store.s3_credentials import has_credentials

LARGE = 5_000  # objects, in five pages of a listing; fewer are listed completely each time
REST = 20  # the pause until the next complete listing, as a multiple of its duration
REST_S_MAX = 60.0
_TIMEOUT = "20s"
_EPOCH, _MICROSECOND = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(microseconds=1)
_NAMES = {
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
    "session_token": "session_token",
    "region": "region",
}


class RemoteListing:
    """The objects below one folder of an S3 bucket."""

    def __init__(self, client: S3Store, prefix: str, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._prefix, self._now = client, prefix, now
        self._files: list[Found] = []
        self._last = ""  # the last name, below the folder
        self._all_at_s = 0.0  # when everything is listed again

    @classmethod
    def of(cls, options: Mapping[str, Any], place: str) -> RemoteListing | None:
        """For the options of Arrow's S3 file system; None if only Arrow knows how to log in."""
        config: Any = {name: str(options[ours]) for ours, name in _NAMES.items() if options.get(ours)}
        if options.get("anonymous"):
            config["skip_signature"] = True
        if options.get("role_arn") or not has_credentials(config):
            return None
        bucket, _, prefix = place.strip("/").partition("/")
        if end := options.get("endpoint_override"):
            config["endpoint"] = end if "://" in end else f"{options.get('scheme') or 'https'}://{end}"
        client: Any = {"timeout": _TIMEOUT, "connect_timeout": "5s", "allow_http": True}
        retries: Any = {"max_retries": 1}
        return cls(S3Store(bucket, config=config, client_options=client, retry_config=retries), prefix)

    def files(self, list_all: Callable[[], list[Found]], hidden: Callable[[str], bool]) -> list[Found]:
        """All files, unordered; the same list object as before if nothing seems new."""
        began_s = self._now()
        if len(self._files) < LARGE or began_s >= self._all_at_s:
            return self._full_listing(list_all, began_s)
        try:
            more = list(self._after(hidden))
        except (raised.PermissionDeniedError, raised.UnauthenticatedError):
            return self._full_listing(list_all, began_s)  # Arrow may have other credentials
        except raised.BaseError as error:
            raise OSError(str(error).splitlines()[0]) from error
        if more:
            self._files = [*self._files, *more]
            self._last = max(file.path for file in more)
        return self._files

    def _full_listing(self, list_all: Callable[[], list[Found]], began_s: float) -> list[Found]:
        found = list_all()
        ended_s = self._now()
        self._all_at_s = ended_s + min(REST_S_MAX, REST * (ended_s - began_s))
        self._files = found
        self._last = max((file.path for file in found), default="")
        return found

    def _after(self, hidden: Callable[[str], bool]) -> Iterator[Found]:
        root = f"{self._prefix}/" if self._prefix else ""
        for page in obstore.list(self._client, self._prefix or None, offset=root + self._last):
            for one in page:
                path = one["path"].removeprefix(root)
                # Without bytes it may be the marker of a folder, which the complete listing knows.
                if one["size"] and not any(hidden(part) for part in path.split("/")):
                    yield Found(path, one["size"], (one["last_modified"] - _EPOCH) // _MICROSECOND)
