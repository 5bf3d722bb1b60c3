"""Opens catalogs of Apache Iceberg, for the sink and the source."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from millpond.errors import InvalidError, UnavailableError
from millpond.masking import masked
from millpond.secret_references import check_references, resolved

_REFERENCE = re.compile(r"\$\{[^}]*\}")
_LOGIN = re.compile(r"://[^/@]*:[^/@]+@")  # an address with a password in it


def pyiceberg(module: str) -> Any:
    """A module of pyiceberg."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidError(
            "Apache Iceberg needs pyiceberg", hint="install it: pip install 'millpond[iceberg]'"
        ) from None


def catalog_settings(given: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The settings of a catalog as they are stored.

    >>> catalog_settings({"type": "sql", "uri": "sqlite:///catalog.db"})
    (('type', 'sql'), ('uri', 'sqlite:///catalog.db'))
    """
    pairs = given.items() if isinstance(given, Mapping) else given
    found = tuple((str(name), str(value)) for name, value in pairs)
    if not found:
        raise InvalidError(
            "the settings of the Iceberg catalog are missing",
            hint='catalog={"type": "rest", "uri": "https://…"}, for example',
        )
    for name, value in found:
        check_references(value)
        login = _LOGIN.search(_REFERENCE.sub("", value))
        if login is not None:
            raise InvalidError(
                f"the setting {name!r} of a catalog must not contain credentials",
                detail=f"got {masked(value)}; settings are stored in the pond",
                hint="write the password as ${env:NAME}",
            )
    return found


def open_catalog(settings: Iterable[tuple[str, str]]) -> Any:
    """A catalog; the caller closes it."""
    given = {name: resolved(value) for name, value in settings}
    try:
        return pyiceberg("pyiceberg.catalog").load_catalog(given.pop("name", "default"), **given)
    except InvalidError:
        raise
    except (ValueError, TypeError) as error:
        raise InvalidError("the settings of the catalog are wrong", detail=str(error)) from None
    except Exception as error:
        raise unavailable(error) from None


def unavailable(error: Exception) -> UnavailableError:
    """The error without secrets."""
    said = " ".join(str(error).split()) or type(error).__name__
    return UnavailableError("Iceberg failed", detail=masked(f"{type(error).__name__}: {said}"))
