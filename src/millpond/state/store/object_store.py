"""A store in a bucket: S3, Google Cloud Storage or Azure, through obstore.

Put-if-absent is the conditional write of the storage.  Law 2 forbids guessing: a put is sent once and never
retried, because the retry of a put that had succeeded would be refused.  Every unclear response becomes
PutUnknownError; only a clear refusal by the storage is LOST.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import obstore
import pyarrow as pa
from obstore import exceptions as raised
from obstore.store import from_url

from millpond.errors import InternalError, InvalidError
from millpond.state.store.s3_credentials import METADATA_HOST, has_credentials, hint_for, require_role
from millpond.state.store.store import (
    Data,
    MissingError,
    Names,
    Put,
    PutUnknownError,
    ReadOnlyError,
    RefusedError,
    StoreError,
    buffers_of,
    check_name,
    check_prefix,
    flag,
    missing,
    with_options,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
CHUNK_BYTES = 8 * 1024 * 1024
_LIST_CHUNK = 1000
_TIMEOUT = "2m"  # of a request with all its bytes
# A small request that takes this long has stalled: it is better made again.  A put is in doubt then.
_SMALL_BYTES_MAX = 1 << 20
_SMALL_TIMEOUT = "20s"
_CLIENT = ("timeout", "connect_timeout")
_FLAGS = ("allow_http", "virtual_hosted_style_request", "skip_signature")
# Options that are allowed in a uri.  Uris are printed, logged and sent to workers, so keys and tokens are
# passed as keywords or, as usual, taken from the environment.
_PUBLIC = frozenset({"endpoint", "region", "retries", *_CLIENT, *_FLAGS})
_REFUSED = (raised.PermissionDeniedError, raised.UnauthenticatedError)
_CREDENTIALS = "check the credentials in the environment and their rights on the bucket"


class ObjectStore:
    """Objects below one prefix; `writer` must not retry, `reader` should.

    `small_reader` and `small_writer` are for small requests, which time out sooner.
    """

    def __init__(
        self,
        reader: Client,
        writer: Client,
        uri: str,
        *,
        small_reader: Client | None = None,
        small_writer: Client | None = None,
        has_credentials: bool = True,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._small_reader = small_reader or reader
        self._small_writer = small_writer or writer
        self._uri = uri
        self._has_credentials = has_credentials  # or was it checked that the machine has a role?

    @classmethod
    def open(cls, scheme: str, body: str, options: dict[str, object], in_uri: set[str]) -> ObjectStore:
        """Open `<scheme>://<body>` with options; `in_uri` names those that were in the uri."""
        leaked = in_uri - _PUBLIC
        if leaked:
            raise InvalidError(
                f"this option does not belong in a store's uri: {', '.join(sorted(leaked))}",
                hint="pass it by keyword, or set it in the environment as for the vendor's own tools",
            )
        config = dict(options)
        flags = {name: flag(config, name, False) for name in _FLAGS if name in config}
        public = {k: str(config[k]) for k in sorted(_PUBLIC & config.keys())}
        public |= {name: str(value).lower() for name, value in flags.items()}
        client: dict[str, object] = {name: str(config.pop(name)) for name in _CLIENT if name in config}
        plain_http = str(config.get("endpoint", "")).startswith("http://")
        if "allow_http" in flags or plain_http:
            client["allow_http"] = flags.pop("allow_http", plain_http)
        retries = int(str(config.pop("retries", 5)))
        url = f"{scheme}://{body}"

        def connect(max_retries: int, timeout: str) -> Client:
            make = cast(Any, from_url)
            try:
                made = make(
                    url,
                    config={**config, **flags},
                    client_options={"timeout": timeout, **client},
                    retry_config={"max_retries": max_retries},
                )
            except (raised.BaseError, ValueError) as error:
                raise InvalidError(f"cannot open the store {url}", detail=_said(error)) from error
            return cast("Client", made)

        known = {**config, **{name: value for name, value in flags.items() if value}}
        has_keys = scheme not in ("s3", "s3a") or has_credentials(known)
        return cls(
            connect(retries, _TIMEOUT),
            connect(0, _TIMEOUT),
            with_options(url, public),
            small_reader=connect(retries, _SMALL_TIMEOUT),
            small_writer=connect(0, _SMALL_TIMEOUT),
            has_credentials=has_keys,
        )

    @property
    def uri(self) -> str:
        return self._uri

    def put_new(self, name: str, data: Data) -> Put:
        _claim_process()
        self._require_credentials()
        check_name(name)
        pieces = buffers_of(data)
        is_small = sum(buffer.nbytes for buffer in pieces) <= _SMALL_BYTES_MAX
        try:
            writer = self._small_writer if is_small else self._writer
            obstore.put(writer, name, pieces, mode="create", use_multipart=False)
        except raised.AlreadyExistsError as error:
            # S3 returns the same status (409) when two puts run concurrently and neither has finished,
            # so LOST requires that the other object exists.
            if self.size(name) is None:
                raise self._doubt(name, error) from error
            return Put.LOST
        except FileNotFoundError as error:
            raise RefusedError(
                f"cannot write {name}: no such bucket or container",
                detail=_said(error),
                hint=f"create it, or correct {self._uri}",
            ) from error
        except _REFUSED as error:
            raise ReadOnlyError(f"may not write {name}", detail=_said(error), hint=_CREDENTIALS) from error
        except raised.NotSupportedError as error:
            raise InvalidError(
                "this storage has no put-if-absent",
                detail=_said(error),
                hint="use one with conditional writes",
            ) from error
        except (raised.BaseError, OSError) as error:
            self._refuse_without_credentials(error)
            raise self._doubt(name, error) from error
        return Put.WON

    @property
    def reads_parts(self) -> bool:
        return True

    def get(self, name: str) -> bytes:
        return bytes(memoryview(self.map(name)))

    def map(self, name: str) -> pa.Buffer:
        """The object in memory; a DiskCache in front of it makes it a mapping."""
        check_name(name)
        with self._reading(name):
            result = obstore.get(self._reader, name)
            body = result.bytes()
            self._check_length(name, result.meta["size"], len(body))
            return pa.py_buffer(body)

    def chunks(self, name: str, start: int = 0) -> Iterator[memoryview]:
        check_name(name)
        with self._reading(name):
            if start:
                result = obstore.get(self._reader, name, options={"range": {"offset": start}})
            else:
                result = obstore.get(self._reader, name)
            seen = start
            for chunk in result.stream(min_chunk_size=CHUNK_BYTES):
                view = memoryview(chunk)
                seen += view.nbytes
                yield view
            self._check_length(name, result.meta["size"], seen)

    def read_part(self, name: str, start: int, length: int) -> tuple[memoryview, int]:
        check_name(name)
        with self._reading(name):
            result = obstore.get(self._reader, name, options={"range": (start, start + length)})
            body, size = memoryview(result.bytes()), int(result.meta["size"])
            self._check_length(name, min(length, size - start), body.nbytes)
            return body, size

    def read_end(self, name: str, length: int) -> tuple[memoryview, int]:
        check_name(name)
        with self._reading(name):
            result = obstore.get(self._reader, name, options={"range": {"suffix": length}})
            body, size = memoryview(result.bytes()), int(result.meta["size"])
            self._check_length(name, min(length, size), body.nbytes)
            return body, size

    def list(self, prefix: str, after: str | None = None) -> Names:
        folder = check_prefix(prefix)
        with self._reading(folder):
            pages = obstore.list(self._small_reader, folder or None, offset=after, chunk_size=_LIST_CHUNK)
            # We guarantee the order and the bound; not every storage does.
            return sorted(o["path"] for page in pages for o in page if after is None or o["path"] > after)

    def delete(self, name: str) -> None:
        check_name(name)
        # Most storages do not report whether the object existed; a missing one is fine.
        with suppress(MissingError), self._reading(name):
            obstore.delete(self._small_reader, name)

    def size(self, name: str) -> int | None:
        check_name(name)
        try:
            with self._reading(name):
                return obstore.head(self._small_reader, name)["size"]
        except MissingError:
            return None

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        _claim_process()
        self._require_credentials()
        try:
            yield
        except FileNotFoundError as error:
            raise missing(name, self._uri) from error
        except _REFUSED as error:
            raise RefusedError(f"may not read {name}", detail=_said(error), hint=_CREDENTIALS) from error
        except raised.BaseError as error:
            self._refuse_without_credentials(error)
            raise StoreError(f"the store did not answer for {name}", detail=_said(error)) from error

    def _require_credentials(self) -> None:
        if not self._has_credentials:
            require_role(self._uri)
            self._has_credentials = True

    def _refuse_without_credentials(self, error: Exception) -> None:
        """Refuse to start without credentials: the library would ask the metadata service of a cloud."""
        if f"//{METADATA_HOST}/" in _said(error):
            scheme = self._uri.partition("://")[0]
            raise InvalidError(
                f"there are no credentials for {self._uri}", detail=_said(error), hint=hint_for(scheme)
            ) from error

    def _check_length(self, name: str, expected: int, seen: int) -> None:
        if seen != expected:
            raise StoreError(f"a fetch was cut short: {name}", detail=f"{expected} bytes stored, {seen} came")

    def _doubt(self, name: str, error: Exception) -> PutUnknownError:
        return PutUnknownError(
            f"cannot say whether {name} was written",
            detail=_said(error),
            hint="read it back and compare before writing again",
        )


_process: int | None = None


def _claim_process() -> None:
    """Keep a forked child from hanging: obstore's threads exist only in the parent."""
    global _process
    here = os.getpid()
    if _process is None:
        _process = here
    elif _process != here:
        raise InternalError(
            "an object store was used before this process was forked",
            detail=f"first used in process {_process}, now in {here}",
            hint="touch object stores only after the fork, or start the process with spawn",
        )


def _said(error: Exception) -> str:
    """The first line of the library's error, without query strings: they may be signed."""
    return re.sub(r"\?\S+", "?…", str(error).split("\n", 1)[0])
