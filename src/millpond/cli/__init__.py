"""The command line: `millpond`.

Commands are plain functions, one file each or a small group.
They take values, never print, and pass their result to a `CommandOutput` (text for people, JSON for scripts).
`app.COMMANDS` lists them.
"""

from __future__ import annotations


def main() -> None:
    """The entry point of the `millpond` script."""
    from millpond.cli.app import app

    app()
