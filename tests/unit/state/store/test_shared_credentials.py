"""Credentials of a store travel by reference."""

from __future__ import annotations

import cloudpickle
import pytest

from millpond.errors import InvalidError
from millpond.state.store import shared_credentials
from millpond.state.store.shared_credentials import by_reference, encoded, find_with, with_values

OPTIONS = {
    "region": "eu",
    "endpoint": "http://h",
    "wait_ms": 7,
    "cache": "/c",
    "access_key_id": "key-of-ann",
    "secret_access_key": "word-of-ann",
    "session_token": "token-of-ann",
}


def test_no_secret_is_in_a_payload() -> None:
    made = by_reference(OPTIONS)
    raw = cloudpickle.dumps(made)
    assert all(secret not in raw for secret in (b"key-of-ann", b"word-of-ann", b"token-of-ann"))
    assert with_values(made) == OPTIONS
    assert by_reference(OPTIONS) == made  # the same reference: one file on a cluster


def test_references_stay_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOC_SECRET", "from-the-environment")
    given = {"secret_access_key": "${env:DOC_SECRET}"}
    assert by_reference(given) == given
    assert with_values(given) == {"secret_access_key": "from-the-environment"}


def test_another_process_finds_them_by_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made = by_reference(OPTIONS)
    raw = encoded(made["credentials"])
    monkeypatch.setattr(shared_credentials, "_known", {})
    monkeypatch.setattr(shared_credentials, "_finders", [])
    with pytest.raises(InvalidError, match="did not reach this process"):
        with_values(made)
    find_with(lambda name: raw if name == made["credentials"] else None)
    assert with_values(made) == OPTIONS
