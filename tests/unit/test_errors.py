"""Errors: the same facts as text, as data and in another process."""

from __future__ import annotations

import copy
import pickle

import pytest

from millpond.errors import (
    ConflictError,
    DataError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)
from millpond.state.store.store import MissingError, PutUnknownError, StoreError

KINDS = [InvalidError, ConflictError, UnavailableError, DataError, InternalError]


def test_the_text_has_what_was_seen_and_what_to_do() -> None:
    error = InvalidError("wrong", detail="3 of 4", hint="do this", step="s", epoch=7)
    assert str(error).splitlines() == [
        "wrong",
        "  where: step 's', epoch 7",
        "  detail: 3 of 4",
        "  hint: do this",
    ]
    assert str(DataError("torn")) == "torn"
    assert str(DataError("torn", epoch=0)).splitlines() == ["torn", "  where: epoch 0"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_fields_are_the_same_facts(kind: type[MillpondError]) -> None:
    error = kind("wrong", detail="d", hint="h", step="s", epoch=7)
    assert error.fields() == {
        "kind": kind.__name__,
        "message": "wrong",
        "detail": "d",
        "hint": "h",
        "step": "s",
        "epoch": 7,
    }
    assert isinstance(error, MillpondError)


@pytest.mark.parametrize("kind", [*KINDS, StoreError, MissingError, PutUnknownError])
def test_an_error_survives_the_way_to_another_process(kind: type[MillpondError]) -> None:
    error = kind("wrong", detail="d", hint="h", step="s", epoch=7)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert again.fields() == error.fields()
        assert str(again) == str(error)


def test_kinds_say_what_to_do_and_none_is_another() -> None:
    for kind in KINDS:
        assert [issubclass(kind, other) for other in KINDS].count(True) == 1
    assert issubclass(MissingError, UnavailableError)
    assert PutUnknownError("x").unknown
    assert not StoreError("x").unknown
