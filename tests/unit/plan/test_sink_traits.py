"""Sinks are asked for their capabilities by type, and a misspelt one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import millpond
from millpond.errors import InvalidError
from millpond.plan.sink_settings import columns_by_name, guarantee_of, modes_of
from millpond.plan.sink_traits import misspelt
from millpond.sinks.callback import CallbackSink
from millpond.sinks.delivery import Delivery
from millpond.sinks.files import FilesSink


@dataclass(frozen=True)
class Plain:
    checked_views: str = ""  # a setting of the sink, not a capability

    def write(self, delivery: Delivery) -> None:
        raise AssertionError("nothing is delivered here")


@dataclass(frozen=True)
class Misspelt(Plain):
    gaurantee: ClassVar[str] = "exactly_once"


@dataclass(frozen=True)
class Unchecked(Plain):
    def chek_view(self, schema: pa.Schema, settings: Any) -> None:
        raise AssertionError("nobody calls this")


class NoSink:
    def writes(self, delivery: Delivery) -> None: ...


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        (Misspelt(), ["Misspelt has an attribute 'gaurantee', which nothing reads", "did you mean 'guarantee'?"]),
        (Unchecked(), ["Unchecked has an attribute 'chek_view', which nothing reads", "did you mean 'check_view'?"]),
        (NoSink(), ["is no sink"]),
    ],
)  # fmt: skip
def test_a_misspelt_capability_is_refused(sink: Any, told: list[str]) -> None:
    with millpond.open("memory://", engine="inline") as pond:
        view = pond.table("t", {"a": int}).key_by("a").aggregate(n="count(*)").view("v")
        with pytest.raises(InvalidError) as caught:
            view.sink("out", sink)
    assert all(part in str(caught.value) for part in told), str(caught.value)


def test_what_a_sink_does_not_say_has_a_default() -> None:
    assert (guarantee_of(Plain()), modes_of(Plain()), columns_by_name(Plain())) == (
        "at_least_once",
        ("changes",),
        False,
    )


def test_the_attributes_of_sinks_that_exist_are_known(tmp_path: Any) -> None:
    assert [misspelt(sink) for sink in (Plain(), CallbackSink(print), FilesSink(str(tmp_path)))] == [None] * 3
