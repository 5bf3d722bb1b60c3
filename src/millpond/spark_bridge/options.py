"""The options of `spark.read`, `readStream`, `write` and `writeStream` with format "millpond".

Law: an option that is not known, or that does not apply, is refused by name; none is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from millpond.errors import InvalidError, nearest

STORE = "store."  # options with this prefix are for the store, as in `store_options` of `millpond.open`
Use = Literal["read", "readStream", "write", "writeStream"]
USES: Mapping[str, tuple[Use, ...]] = {
    "path": ("read", "readStream", "write", "writeStream"),
    "view": ("read", "readStream"),
    "query": ("read",),
    "columns": ("read", "readStream"),
    "epoch": ("read",),
    "keys": ("read",),
    "pushFilters": ("read",),
    "partitions": ("read", "readStream"),
    "pinMs": ("read", "readStream"),
    "mode": ("readStream",),
    "startingEpoch": ("readStream",),
    "maxEpochsPerTrigger": ("readStream",),
    "table": ("write", "writeStream"),
    "client": ("write",),
    "batch": ("write",),
}
_SHOWN = {name.lower(): name for name in USES}
_OF_SPARK = {"checkpointlocation", "queryname"}  # Spark passes its own options of a query on


@dataclass(frozen=True)
class SparkOptions:
    """Options by their lower-case names; Spark does not distinguish case."""

    given: tuple[tuple[str, str], ...]

    @staticmethod
    def of(given: Mapping[str, str]) -> SparkOptions:
        """
        >>> SparkOptions.of({"PATH": "/pond", "view": "totals"}).text("path", "read")
        '/pond'
        """
        known = {name.lower(): value for name, value in given.items()}
        for name in known:
            if name not in _SHOWN and name not in _OF_SPARK and not name.startswith(STORE):
                raise InvalidError(
                    f'format "millpond" has no option {name!r}',
                    detail=f"options are {', '.join(USES)} and {STORE}*",
                    hint=nearest(name, USES),
                )
        return SparkOptions(tuple(sorted(known.items())))

    def require_use(self, use: Use) -> None:
        """Refuse options that do not apply to this use."""
        for name, _ in self.given:
            shown = _SHOWN.get(name)
            if shown is not None and use not in USES[shown]:
                raise InvalidError(
                    f"option {shown!r} does not apply to {use}", detail=f"it is for {', '.join(USES[shown])}"
                )

    def get(self, name: str) -> str | None:
        return dict(self.given).get(name.lower())

    def text(self, name: str, use: Use) -> str:
        found = self.get(name)
        if not found:
            calls = {"path": '.load("/data/pond")', "view": '.option("view", "totals")'}
            if use in ("write", "writeStream"):
                calls = {"path": '.save("/data/pond")', "table": '.option("table", "orders")'}
            raise InvalidError(f"{use} needs the option {name!r}", hint=f"for example {calls[name]}")
        return found

    def number(self, name: str, default: int, least: int = 1) -> int:
        found = self.get(name)
        if found is None:
            return default
        try:
            value = int(found)
        except ValueError:
            value = least - 1
        if value < least:
            raise InvalidError(
                f"option {name!r} must be a whole number, at least {least}", detail=f"got {found!r}"
            )
        return value

    def flag(self, name: str) -> bool:
        found = (self.get(name) or "false").lower()
        if found not in ("true", "false"):
            raise InvalidError(f"option {name!r} must be true or false", detail=f"got {found!r}")
        return found == "true"

    def names(self, name: str) -> tuple[str, ...] | None:
        """A list of names, separated with commas."""
        found = self.get(name)
        return None if found is None else tuple(part.strip() for part in found.split(","))

    @property
    def epoch(self) -> int | str | None:
        """An epoch, the name of a savepoint, or None for the newest epoch.

        >>> SparkOptions.of({"epoch": "12"}).epoch, SparkOptions.of({"epoch": "monday"}).epoch
        (12, 'monday')
        """
        found = self.get("epoch")
        return int(found) if found is not None and found.isdecimal() else found

    @property
    def store(self) -> dict[str, str]:
        """
        >>> SparkOptions.of({"store.endpoint": "http://localhost:9000"}).store
        {'endpoint': 'http://localhost:9000'}
        """
        return {n.removeprefix(STORE): v for n, v in self.given if n.startswith(STORE)}
