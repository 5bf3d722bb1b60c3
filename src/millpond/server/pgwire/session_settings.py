"""The settings of one connection: SET, SHOW, RESET and the parameters that clients are told.

A setting is applied, accepted because it changes nothing here, or accepted with a notice that says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from millpond.errors import InvalidError
from millpond.server.client_session import ClientSession
from millpond.server.pgwire.error_reports import PgError
from millpond.sql.pg_catalog.server_settings import DEFAULTS, FIXED, QUIET, is_default
from millpond.sql.text.schema_names import search_path
from millpond.sql.text.time_zones import zone_named

REPORTED = (
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
)
_LOWER = {name.lower(): name for name in DEFAULTS}


class SessionSettings:
    def __init__(
        self, client: ClientSession, user: str, started_with: Mapping[str, str], is_admin: bool
    ) -> None:
        self._client = client
        self._values = dict(DEFAULTS)
        self._values["session_authorization"] = user
        self._values["is_superuser"] = "on" if is_admin else "off"
        self._values["statement_timeout"] = str(client.statement_ms_max)
        self._values["read_your_writes"] = "on" if client.read_your_writes else "off"
        self._first: dict[str, str] = {}
        self.notices: list[str] = []
        for name, value in started_with.items():
            if name == "options":
                for own, given in startup_options(value):
                    self.set(own, given)
            elif name not in ("user", "database", "replication"):
                self.set(name, value)
        self._first = dict(self._values)

    def get(self, name: str) -> str | None:
        """The value of a setting; None if there is no such setting."""
        lower = name.lower()
        known = _LOWER.get(
            {"timezone": "timezone", "transaction isolation level": "transaction_isolation"}.get(lower, lower)
        )
        return self._values.get(known or lower)

    def all(self) -> list[tuple[str, str]]:
        return sorted(self._values.items(), key=lambda item: item[0].lower())

    def reported(self) -> list[tuple[str, str]]:
        return [(name, self._values[name]) for name in REPORTED]

    def reset(self, name: str | None = None) -> list[tuple[str, str]]:
        """Return to the value of the beginning; gives those that clients must be told."""
        names = list(self._first) if name is None else [_LOWER.get(name.lower(), name.lower())]
        changed = []
        for one in names:
            value = self._first.get(one)
            if value is not None and value != self._values.get(one):
                changed += self.set(one, value)
        return changed

    def set(self, name: str, value: str) -> list[tuple[str, str]]:
        """Change a setting; gives what clients must be told.  `notices` says what has no effect."""
        known = _LOWER.get(name.lower(), name.lower())
        if value.lower() == "default":
            value = self._first.get(known, DEFAULTS.get(known, ""))
        if known in FIXED and value != self._values.get(known):
            raise PgError("55P02", f"the setting {known} cannot be changed")
        before = self._values.get(known)
        self._values[known] = self._applied(known, value)
        if known in REPORTED and self._values[known] != before:
            return [(known, self._values[known])]
        return []

    def _applied(self, name: str, value: str) -> str:
        match name:
            case "statement_timeout":
                self._client.statement_ms_max = milliseconds(name, value)
                return str(self._client.statement_ms_max)
            case "idle_session_timeout" | "idle_in_transaction_session_timeout":
                return str(milliseconds(name, value))
            case "read_your_writes":
                self._client.read_your_writes = _is_on(name, value)
                return "on" if self._client.read_your_writes else "off"
            case "client_encoding":
                if not is_default(name, value):
                    raise PgError("22023", f"the encoding {value!r} is not supported", hint="use UTF8")
                return "UTF8"
            case "TimeZone":
                try:
                    self._client.time_zone = zone_named(value.strip().strip("'"))
                except InvalidError as error:
                    raise PgError("22023", error.message, hint=error.hint) from None
                return self._client.time_zone
            case "search_path":
                self._client.search_path = search_path(value.split(","))
                return value
            case "DateStyle":
                if not is_default(name, value):
                    self.notices.append(f"dates are shown in ISO style; DateStyle {value!r} has no effect")
                return DEFAULTS["DateStyle"]
            case "IntervalStyle":
                if not is_default(name, value):
                    self.notices.append(f"IntervalStyle {value!r} has no effect")
                return "postgres"
            case _ if name.startswith("select_"):
                self._client.limits[name] = whole(name, value)
                return value
            case _ if name in QUIET or is_default(name, value):
                return value
        self.notices.append(f"the setting {name} has no effect here")
        return value

    @property
    def idle_ms_max(self) -> int:
        return int(self._values["idle_session_timeout"])

    @property
    def idle_in_transaction_ms_max(self) -> int:
        return int(self._values["idle_in_transaction_session_timeout"])


_OPTION = re.compile(r"(?:-c\s*|--)([\w.-]+)=((?:\\.|\S)*)")


def startup_options(text: str) -> list[tuple[str, str]]:
    r"""The settings among the options of a startup message.

    >>> startup_options(r"-c timezone=Europe/Berlin --search_path=a,\ b")
    [('timezone', 'Europe/Berlin'), ('search_path', 'a, b')]
    """
    found = _OPTION.findall(text)
    return [(name.replace("-", "_"), re.sub(r"\\(.)", r"\1", value)) for name, value in found]


_UNITS = {"us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(name: str, value: str) -> int:
    """A time as PostgreSQL writes it.

    >>> milliseconds("x", "250"), milliseconds("x", "2s"), milliseconds("x", "1min")
    (250, 2000, 60000)
    """
    text = value.strip()
    unit = next((u for u in sorted(_UNITS, key=len, reverse=True) if text.endswith(u)), None)
    number, size = (text, 1.0) if unit is None else (text[: -len(unit)].strip(), _UNITS[unit])
    try:
        found = int(float(number) * size)
    except (ValueError, OverflowError):
        raise PgError(
            "22023", f"invalid value for {name}: {value!r}", hint="a number of ms, or 5s, 1min"
        ) from None
    if not 0 <= found < 2**31:
        raise PgError("22023", f"{name} is out of range: {value!r}")
    return found


def whole(name: str, value: str) -> int:
    if not value.strip().isdecimal():
        raise PgError("22023", f"invalid value for {name}: {value!r}", hint="a whole number")
    return int(value)


def _is_on(name: str, value: str) -> bool:
    if value.lower() in ("on", "true", "yes", "1", "t"):
        return True
    if value.lower() in ("off", "false", "no", "0", "f"):
        return False
    raise PgError("22023", f"{name} is on or off", detail=f"got {value!r}")
