"""SET, SHOW and RESET of the time zone, which is UTC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.errors import InvalidError
from millpond.pond import Pond
from tests.sql.asked import opened, rows


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with opened(tmp_path) as made:
        yield made


def test_the_time_zone_is_utc(pond: Pond) -> None:
    for text in (
        "SET TimeZone = 'UTC'",
        "SET LOCAL timezone TO GMT",
        "SET TIME ZONE 'utc'",
        "SET TIME ZONE DEFAULT",
    ):
        pond.sql(text)
    for text in ("SHOW TimeZone", "SHOW TIME ZONE"):
        assert rows(pond, text) == [("UTC",)]
    pond.sql("RESET TimeZone")
    assert ("TimeZone", "UTC") in [row[:2] for row in rows(pond, "SHOW ALL")]


def test_another_zone_is_refused_instead_of_ignored(pond: Pond) -> None:
    for text in ("SET TimeZone TO 'Europe/Berlin'", "SET TIME ZONE 'Europe/Berlin'"):
        with pytest.raises(InvalidError, match="times are shown in UTC, and not in 'Europe/Berlin'"):
            pond.sql(text)
    zone = "SELECT (timestamptz '2024-07-01 12:00+00' AT TIME ZONE 'Europe/Berlin')::text"
    assert rows(pond, zone) == [("2024-07-01 14:00:00",)]
