"""The secrets of a pond: files that only their owner can read, in the folder of the pond.

    secrets/<name>   the value, as it was given

Law: a value is in its file and nowhere else: not in the catalog, a manifest, the inbox, a backup or a fork.
A pond in a bucket stores no secrets: whoever can read its rows could read them.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path
from urllib.parse import unquote

from millpond.errors import InvalidError, UnavailableError, nearest
from millpond.state.store.local_store import make_private
from millpond.state.store.store import Store

FOLDER = "secrets"
BYTES_MAX = 64 << 10
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")


class SecretFiles:
    """The secrets of the pond in a store."""

    def __init__(self, store: Store) -> None:
        self._uri = store.uri

    def names(self) -> list[str]:
        folder = self._folder()
        try:
            entries = [] if folder is None else os.listdir(folder / FOLDER)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in entries if _NAME.fullmatch(name))

    def put(self, name: str, value: str) -> None:
        """Store a secret, or another value of it; a reader sees the old or the new one, complete."""
        folder = self._need_folder()
        if not _NAME.fullmatch(name):
            raise InvalidError(
                f"a secret cannot be named {name!r}", hint="letters, digits, _ and -, and no digit first"
            )
        if not value or "\0" in value or len(value.encode()) > BYTES_MAX:
            raise InvalidError(
                f"secret {name!r} is empty, has a NUL character or is too long",
                detail=f"{len(value.encode())} bytes, at most {BYTES_MAX} are possible",
            )
        temp = folder / FOLDER / f".{name}.{os.getpid()}-{secrets.token_hex(4)}"
        try:
            make_private(folder)
            (folder / FOLDER).mkdir(0o700, exist_ok=True)
            # Only the owner can open the file, from its first moment on.
            handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                os.write(handle, value.encode())
                os.fsync(handle)
            finally:
                os.close(handle)
            temp.replace(folder / FOLDER / name)
        except OSError as error:
            temp.unlink(missing_ok=True)
            raise UnavailableError(f"secret {name!r} cannot be stored", detail=error.strerror) from None

    def drop(self, name: str) -> None:
        self._need(name)
        (self._need_folder() / FOLDER / name).unlink(missing_ok=True)

    def value(self, name: str) -> str:
        """The value of a secret; refused if others can read its file."""
        self._need(name)
        path = self._need_folder() / FOLDER / name
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with open(handle, encoding="utf-8", newline="") as file:
                mode = os.fstat(handle).st_mode
                if stat.S_IMODE(mode) & 0o077:
                    raise InvalidError(
                        f"others can read secret {name!r}",
                        detail=f"{path} has the mode {stat.S_IMODE(mode):o}",
                        hint=f"chmod 600 {path}, and consider another password",
                    )
                return file.read()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise UnavailableError(f"secret {name!r} cannot be read", detail=reason) from None

    def _need(self, name: str) -> None:
        self._need_folder()
        known = self.names()
        if name not in known:
            raise InvalidError(
                f"no secret named {name!r}",
                detail=f"secrets of this pond are {', '.join(known) or 'none'}",
                hint=nearest(name, known, f"CREATE SECRET {name} WITH (value = '…')"),
            )

    def _need_folder(self) -> Path:
        folder = self._folder()
        if folder is None:
            raise InvalidError(
                "a pond that is not in a folder stores no secrets",
                detail=self._uri,
                hint="write ${env:NAME} or ${file:/path} instead",
            )
        return folder

    def _folder(self) -> Path | None:
        if not self._uri.startswith("file://"):
            return None
        return Path(unquote(self._uri.removeprefix("file://").partition("?")[0]))
