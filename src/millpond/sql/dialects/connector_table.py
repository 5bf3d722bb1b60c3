"""Translates the options of another system's connector to ours; unknown options are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
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
    )  # by our option: their value -> ours


def translated_options(given: Options, table: ConnectorTable, dialect: str) -> dict[str, str]:
    """Our options; an error shows the option that has no meaning here."""
    prefixes = tuple(name.removesuffix("*") for name in table.renamed if name.endswith("*"))
    found = {"connector": table.ours}
    for name, value in given.items():
        if name == "connector" or name in table.ignored:
            continue
        if name in table.renamed:
            ours = table.renamed[name]
            known = table.values.get(ours)
            if known is not None and value.lower() not in known:
                given.parts[name].fail(
                    f"option {name!r} of the dialect {dialect!r} cannot be {value!r} here",
                    0,
                    f"one of {', '.join(known)}",
                )
            found[ours] = value if known is None else known[value.lower()]
        elif prefixes and name.startswith(prefixes):
            found[name] = value
        else:
            hint = (
                table.refused.get(name) or f"known are {', '.join([*table.renamed, *sorted(table.ignored)])}"
            )
            given.parts[name].fail(f"option {name!r} of the dialect {dialect!r} is not supported", 0, hint)
    return found


def option_list(options: Mapping[str, str]) -> str:
    """`WITH (…)` with these options."""
    listed = ", ".join(f"{_name(name)} = {text_literal(value)}" for name, value in options.items())
    return f"WITH ({listed})"


def _name(name: str) -> str:
    return name if all(part.isidentifier() for part in name.split(".")) else text_literal(name)
