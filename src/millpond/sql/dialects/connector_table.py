"""Translates the options of another system's connector to ours; unknown options are refused by name."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millpond.sql.binding.types import text_literal
from millpond.sql.text.options import Options


@dataclass(frozen=True)
class ConnectorTable:
    """How a connector of another system is written as one of ours."""

    ours: str
    renamed: Mapping[str, str] = field(
        default_factory=dict
    )  # their option -> ours; "x.*" is a prefix that stays
    ignored: frozenset[str] = frozenset()  # say how the other system works, and change no row
    refused: Mapping[str, str] = field(default_factory=dict)  # what to do instead
    values: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # by our option: their value -> ours; "" if another option says it
    # Their option -> ours with their values, from its value; ValueError if that cannot be.
    converted: Mapping[str, Callable[[str], Mapping[str, str]]] = field(default_factory=dict)


def start_at_ms(value: str) -> dict[str, str]:
    """
    >>> start_at_ms("1700000000123")
    {'start': '2023-11-14 22:13:20.123000'}
    """
    since = datetime.timedelta(milliseconds=int(value))
    return {"start": (datetime.datetime(1970, 1, 1) + since).isoformat(" ", "microseconds")}


def translated_options(given: Options, table: ConnectorTable, dialect: str) -> dict[str, str]:
    """Our options; an error shows the option that has no meaning here."""
    prefixes = tuple(name.removesuffix("*") for name in table.renamed if name.endswith("*"))
    found = {"connector": table.ours}
    elsewhere: dict[str, str] = {}  # our option -> theirs
    for name, value in given.items():
        if name == "connector" or name in table.ignored:
            continue
        if name in table.converted:
            try:
                found.update(table.converted[name](value))
            except (ValueError, OverflowError):
                given.parts[name].fail(
                    f"option {name!r} of the dialect {dialect!r} cannot be {value!r}", 0, "correct its value"
                )
        elif name in table.renamed:
            ours = table.renamed[name]
            known = table.values.get(ours)
            if known is not None and value.lower() not in known:
                given.parts[name].fail(
                    f"option {name!r} of the dialect {dialect!r} cannot be {value!r} here",
                    0,
                    f"one of {', '.join(known)}",
                )
            meant = value if known is None else known[value.lower()]
            if meant or known is None:
                found.setdefault(ours, meant)
            else:
                elsewhere[ours] = name
        elif prefixes and name.startswith(prefixes):
            found[name] = value
        else:
            hint = (
                table.refused.get(name)
                or f"known are {', '.join([*table.renamed, *table.converted, *sorted(table.ignored)])}"
            )
            given.parts[name].fail(f"option {name!r} of the dialect {dialect!r} is not supported", 0, hint)
    for ours, name in elsewhere.items():
        if ours not in found:
            hint = f"one of {', '.join(table.converted)}"
            given.parts[name].fail(f"{name} = {given[name]!r} needs another option", 0, hint)
    return found


def option_list(options: Mapping[str, str]) -> str:
    """`WITH (…)` with these options."""
    listed = ", ".join(f"{_name(name)} = {text_literal(value)}" for name, value in options.items())
    return f"WITH ({listed})"


def _name(name: str) -> str:
    return name if all(part.isidentifier() for part in name.split(".")) else text_literal(name)
