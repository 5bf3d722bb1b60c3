"""The version of PostgreSQL whose catalog, protocol and syntax clients find."""

from __future__ import annotations

from millpond.version import __version__

SERVER_VERSION = "15.8"
VERSION_TEXT = f"PostgreSQL {SERVER_VERSION} (Millpond {__version__})"
