"""A pond in this process, and what it answers: for tests of single statements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import MillpondError
from millpond.pond import Pond


def opened(tmp_path: Path, **settings: Any) -> Pond:
    return millpond.open(tmp_path / "pond", engine="inline", checks=True, **{"parallelism": 2, **settings})


def rows(pond: Pond, sql: str) -> list[tuple[Any, ...]]:
    return sorted(pond.sql(sql).fetchall(), key=repr)


def refused(pond: Pond, sql: str) -> str:
    with pytest.raises(MillpondError) as caught:
        pond.sql(sql)
    return str(caught.value)
