"""Settings: known names, right types, sensible bounds."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from millpond.settings import Settings, make_settings


def test_what_is_given_is_kept_and_the_rest_is_as_said() -> None:
    assert make_settings() == Settings()
    made = make_settings(durable=False, retain_epochs=7)
    assert (made.durable, made.retain_epochs, made.target_ms) == (False, 7, Settings().target_ms)


def test_an_unknown_name_comes_with_the_nearest() -> None:
    with pytest.raises(InvalidError, match="no setting named 'retain_epoch'") as caught:
        make_settings(retain_epoch=1)
    assert caught.value.hint == "did you mean 'retain_epochs'?"
    with pytest.raises(InvalidError, match="no setting named 'zzz'") as caught:
        make_settings(zzz=1)
    assert all(f.name in (caught.value.hint or "") for f in fields(Settings))


@pytest.mark.parametrize(
    "given",
    [
        {"durable": 1},
        {"durable": "yes"},
        {"durable": None},
        {"target_ms": True},
        {"target_ms": 0},
        {"target_ms": -5},
        {"target_ms": 1.5},
        {"target_ms": "100"},
        {"poll_ms": None},
        {"fan_in": 1},
    ],
    ids=str,
)
def test_what_a_setting_cannot_be(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(InvalidError, match=f"setting {name!r} cannot be"):
        make_settings(**given)


def test_every_setting_has_a_sensible_default() -> None:
    """The defaults go through the same door."""
    assert make_settings(**{f.name: f.default for f in fields(Settings)}) == Settings()


def test_open_takes_settings_and_refuses_wrong_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="no setting named 'paralelism'"):
        millpond.open(tmp_path, engine="inline", paralelism=3)
    assert not list(tmp_path.iterdir())
