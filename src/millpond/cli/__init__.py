"""The command line: `millpond`.

Commands are plain functions, one file each or a small group; they take values,
never print, and hand what they found to an `Output` (text for people, JSON for
scripts).  `app.COMMANDS` is the list of them.
"""

from __future__ import annotations


def main() -> None:
    """The entry point of the `millpond` script."""
    from millpond.cli.app import app

    app()
