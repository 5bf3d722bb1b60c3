"""The prompt of `millpond sql`: lines become statements, with history and completion.

A statement continues over any number of lines until its `;`.  Ctrl-C discards what was typed, Ctrl-D ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlglot import TokenType

from millpond.errors import MillpondError
from millpond.masking import MASK, masked_options
from millpond.sql.text.parse import tokens_of

KEYWORDS = (
    "ALTER", "AND", "APPEND", "AS", "BY", "CASCADE", "CREATE", "DELETE", "DESCRIBE", "DISTINCT", "DROP",
    "EMIT", "EPOCH", "EPOCHS", "EXISTS", "EXPLAIN", "FLUSH", "FROM", "FUNCTION", "FUNCTIONS", "GROUP",
    "HAVING", "IF", "INDEX", "INSERT", "INTERVAL", "INTO", "JOIN", "KEY", "LEFT", "LIMIT",
    "MATERIALIZED", "NOT", "NULL", "ON", "ORDER", "PRIMARY", "RENAME", "REPLACE", "SAVEPOINT", "SECRET",
    "SECRETS", "SELECT",
    "SET", "SHOW", "SINCE", "SINK", "SINKS", "SOURCE", "SOURCES", "SUBSCRIBE", "TABLE", "TABLES",
    "UNION", "UPDATE", "VALUES", "VIEW", "VIEWS", "WATERMARK", "WHERE", "WINDOW", "WITH",
)  # fmt: skip
FIRST, MORE = "millpond> ", "       -> "


def is_complete(text: str) -> bool:
    """Is the text a complete statement?

    >>> [is_complete(text) for text in ("select 1", "select ';'", "select 1; -- done", "select '")]
    [False, False, True, False]
    """
    try:
        tokens = tokens_of(text, "postgres")
    except MillpondError:
        return False  # inside quotes
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def texts(read: Callable[[str], str], say: Callable[[str], None]) -> Iterator[str]:
    """The typed statements; a line that begins with a backslash is complete by itself."""
    lines: list[str] = []
    while True:
        try:
            line = read(MORE if lines else FIRST)
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            say("")
            lines = []
            continue
        if not lines and line.lstrip().startswith("\\"):
            yield line.strip()
            continue
        if not lines and not line.strip():
            continue
        lines.append(line)
        if is_complete("\n".join(lines)):
            text, lines = "\n".join(lines), []
            yield text


def candidates(text: str, names: list[str]) -> list[str]:
    """The completions of a word.

    >>> candidates("sel", ["sells"]), candidates("SEL", ["sells"])
    (['select', 'sells'], ['SELECT', 'sells'])
    """
    words = [k if text[:1].isupper() else k.lower() for k in KEYWORDS]
    return sorted(w for w in [*words, *names] if text and w.lower().startswith(text.lower()))


@contextlib.contextmanager
def history(names: Callable[[], list[str]]) -> Iterator[None]:
    """Enable line editing, history and completion with Tab inside the block, if the system supports them."""
    try:
        import readline
    except ImportError:
        yield
        return
    folder = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "millpond"
    file = folder / "sql_history"

    def complete(text: str, number: int) -> str | None:
        try:
            found = candidates(text, names())
        except MillpondError:
            found = candidates(text, [])
        return found[number] if number < len(found) else None

    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            folder.mkdir(0o700, parents=True, exist_ok=True)
            readline.set_history_length(10_000)
            _mask_history(readline)
            readline.write_history_file(file)
            file.chmod(0o600)


def _mask_history(readline: Any) -> None:
    """Mask secrets in the history file."""
    count = readline.get_current_history_length()
    lines = [readline.get_history_item(place + 1) or "" for place in range(count)]
    for place, shown in enumerate(masked_lines(lines)):
        if shown != lines[place]:
            readline.replace_history_item(place, shown)


def masked_lines(lines: Sequence[str]) -> Iterator[str]:
    """Lines of a history without secrets; a CREATE SECRET may have several of them.

    >>> list(masked_lines(["CREATE SECRET pg", "AS 'hunter2';", "SELECT 1;"]))
    ['CREATE SECRET pg', '***', 'SELECT 1;']
    """
    statement = ""
    for line in lines:
        within, statement = statement, f"{statement}\n{line}" if statement else line
        if within and masked_options(statement) != statement and "secret" in within.lower():
            yield MASK
        else:
            yield masked_options(line)
        if is_complete(statement) or not line.strip():
            statement = ""
