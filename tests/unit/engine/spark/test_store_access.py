"""Executors that cannot read the store of a pond are refused before the first epoch, with the cause."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from millpond.engine.spark.store_access import check_store_access
from millpond.errors import InvalidError
from millpond.state.store import s3_credentials


class Here:
    """A chain whose tasks run in this process."""

    def __init__(self) -> None:
        self.tasks = 0

    def map(self, function: Callable[[bytes], bytes], items: Sequence[bytes], *rest: Any, **more: Any) -> Any:
        self.tasks += len(items)
        return [function(item) for item in items]


def test_credentials_that_only_the_driver_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(s3_credentials, "_has_metadata", lambda: False)
    chain = Here()
    with pytest.raises(InvalidError, match="the executors cannot read the store of the pond") as caught:
        check_store_access(cast(Any, chain), "s3://b/p?region=eu", {"wait_ms": 1000}, 2)
    assert chain.tasks == 2
    assert "there are no credentials" in caught.value.message
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)


def test_a_folder_that_an_executor_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="does not exist on the host of an executor") as caught:
        check_store_access(cast(Any, Here()), (tmp_path / "none").as_uri(), {}, 1)
    assert "s3://" in str(caught.value.hint)


def test_a_store_that_can_be_read_passes(tmp_path: Path) -> None:
    check_store_access(cast(Any, Here()), tmp_path.as_uri(), {"durable": False}, 3)
