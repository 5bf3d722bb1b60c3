"""Decides whether code that is stored in a pond may run in this process.

Anyone who can write to a pond can put code into it.  So stored code runs only if the pond belongs to the user
of this process (git has the same rule for what a repository configures), or if the caller declares that the
pond is trusted.  Root is a user like any other; under sudo, files of the user who called it are accepted as
well.

An object store does not show who wrote to it, so its code needs that declaration.  A pond in memory was
created by this process.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from millpond.errors import InvalidError
from millpond.state.store.store import Store
from millpond.stored_code import Guard

HINT = (
    "if you trust everybody who can write to this pond, open it with millpond.open(..., trust=True), "
    "or pass --trust on the command line"
)
_FOLDERS = ("", "manifests", "catalog", "runs")


class Trust:
    """Decides about the code of one pond; `given` says whether the caller declared it trusted."""

    def __init__(self, store: Store, is_trusted: bool = False) -> None:
        self._uri = store.uri
        self.given = is_trusted
        self._asked: set[str | None] = set()  # catalogs that are known to be ours

    def guard(self, catalog: str) -> Guard:
        """The check to make before running code of one catalog."""
        return lambda name: self.require(name, catalog)

    def require(self, what: str, catalog: str | None = None) -> None:
        """Raise InvalidError unless stored code may run."""
        if self.given or catalog in self._asked:
            return
        why = self._doubt(catalog)
        if why is not None:
            raise _refusal(f"{what} is stored in a pond that is not known to be yours, and was not run", why)
        self._asked.add(catalog)

    def require_owner(self, what: str) -> None:
        """The same for stores that show owners; an object store is accepted."""
        if not self.given and self._folder() is not None:
            why = self._doubt(None)
            if why is not None:
                raise _refusal(f"{what} in a pond that is not yours, which was not run", why)

    def _doubt(self, catalog: str | None) -> str | None:
        """The reason why the pond may belong to another user; None if it is ours."""
        folder = self._folder()
        if folder is None:
            own = self._uri.startswith("memory:")
            return None if own else f"{self._uri} is an object store, where nobody can see who wrote what"
        paths = [folder / name for name in _FOLDERS]
        if catalog is not None:
            paths.append(folder / catalog)
        return next((why for path in paths if (why := _foreign(path)) is not None), None)

    def _folder(self) -> Path | None:
        if not self._uri.startswith("file://"):
            return None
        return Path(unquote(self._uri.removeprefix("file://").partition("?")[0]))


def _foreign(path: Path) -> str | None:
    """The owner of a file, if it is not this user; None if there is no such file."""
    if not hasattr(os, "geteuid"):
        return None  # a platform without POSIX owners
    try:
        owner = os.stat(path).st_uid
    except FileNotFoundError:
        return None
    me = os.geteuid()
    if owner == me or (me == 0 and os.environ.get("SUDO_UID") == str(owner)):
        return None
    return f"{path} belongs to {_user(owner)}, and this process runs as {_user(me)}"


def _user(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _refusal(message: str, why: str) -> InvalidError:
    return InvalidError(message, detail=why, hint=HINT)
