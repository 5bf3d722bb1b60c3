"""What the definitions of all connectors share: the check of their options, and how single ones are read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from millpond.errors import InvalidError
from millpond.secret_references import require_secrets
from millpond.sql.text.options import Options, only
from millpond.sql.text.parse import closest_name


def check_connector(options: Options, known: Mapping[str, Sequence[str]], what: str) -> None:
    """Refuse an unknown connector, and options that it does not have."""
    if "connector" not in options:
        near = difflib.get_close_matches("connector", options, 1)
        meant = f"did you mean 'connector' where {near[0]!r} stands?" if near else "WITH (connector = '…', …)"
        raise InvalidError("option 'connector' is missing", hint=meant)
    connector = options["connector"]
    if connector not in known:
        raise InvalidError(
            f"no {what} named {connector!r}",
            detail=f"there are {', '.join(known)}",
            hint=closest_name(connector, list(known)),
        )
    only(options, ["connector", *known[connector]], f"connector {connector!r}")
    for value in options.values():
        require_secrets(value)


def need(options: dict[str, str], name: str) -> str:
    if name not in options:
        raise InvalidError(f"option {name!r} is missing", hint=f"WITH ({name} = '…', …)")
    return options.pop(name)


def number(options: dict[str, str], name: str) -> int | None:
    value = options.pop(name, None)
    if value is None:
        return None
    if not value.isdecimal():
        raise InvalidError(f"option {name!r} is a number", detail=f"got {value!r}")
    return int(value)


def prefixed(options: dict[str, str], prefix: str) -> tuple[tuple[str, str], ...]:
    """The options whose names begin with a prefix, without it.

    >>> prefixed({"path": "x", "store.region": "eu"}, "store.")
    (('region', 'eu'),)
    """
    return tuple((n.removeprefix(prefix), v) for n, v in options.items() if n.startswith(prefix))


def listed(text: str) -> tuple[str, ...]:
    """
    >>> listed("a, b"), listed("")
    (('a', 'b'), ())
    """
    return tuple(part.strip() for part in text.split(",") if part.strip())


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise InvalidError(f"option {name!r} is true or false", detail=f"got {value!r}")
    return value == "true"
