"""Every class that a catalog can hold has a tag, and tags stay what they are."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import DataError, InternalError
from millpond.moved_names import MOVED
from millpond.plan import catalog_format, catalog_v1, codec
from millpond.plan.nodes import Plan, View
from millpond.plan.tags import ADDRESSES, UnknownTagError, class_of, tag_of
from millpond.version import __version__

# Where the classes of plans live.
MODULES = (
    "kernels",
    "operators",
    "process",
    "sources",
    "sinks",
    "plan.nodes",
    "plan.objects",
    "state.tables.table_spec",
    "ordering",
)
# Classes there that are never part of a stored plan.
NEVER = {
    *(
        "cell_sketch:CellSketch",
        "csv_records:CsvMarks",
        "csv_records:CsvRecord",
        "kafka:UnreadOffsets",
        "kafka_changes:_Decoded",
        "message_values:Form",
        "message_values:Unnamed",
        "kafka_messages:MessageMaker",
        "kafka_producer:ProducerSettings",
        "kafka_progress:SinkProgress",
        "kafka_topics:TopicFacts",
        "row_encoding:Unencodable",
        "source_traits:PartitionLag",
        "type_text:Kind",
        "number_formats:DecimalFormat",
    ),
    *(
        "pgoutput:LoggedColumn",
        "pgoutput:LoggedRelation",
        "pgoutput:RowChange",
        "postgres_copy:CopiedRows",
        "postgres_schema:ServerColumn",
        "message_formats:FormatOptions",
        "pond_view:_Changed",
        "upstream_pond:Hold",
        "http:_Answer",
    ),
    *(
        "accumulate:_KeyRows",
        "timer_wheel:Due",
        "timer_wheel:TimerWheel",
    ),
    *(
        "dense_groups:DenseGroups",
        "extreme:_Best",
        "time_granularity:Grains",
        "join_epoch:NewRows",
        "join_match:Met",
        "recursion:_Seen",
        "recursion:Limits",
    ),
    *(
        "expression_kernel:Evaluated",
        "operator:Change",
        "operator:StepResult",
        "packed_rows:_Part",
    ),
    *("batch:Batch", "batch:Failure", "batch:Swift", "batch_process:KeyBatch", "control:_Calls"),
    *("declaration:Declared", "handle:Home", "row_order:Ordered", "rounds:Rounds", "run:LanesResult"),
    *(
        "list_handle:_List",
        "map_handle:_Map",
        "outputs:ProcessOutput",
        "outputs:OutputColumns",
        "timers:DueTimers",
    ),
    *("file_format:FileFacts", "file_format:FileRange", "kafka_client:Cluster", "kafka_client:Topic"),
    *(
        "local_listing:_Directory",
        "memory:EventTimeBound",
        "memory:Crash",
        "memory:Pause",
        "nexmark_events:_EventBlock",
    ),
    *(
        "emit_panes:EpochPanes",
        "trigger_deadlines:DueHints",
        "open_windows:Firing",
        "triggered_sessions:_Merging",
        "files:_Generation",
        "triggers:StateCell",
    ),
    *("delivery:Delivery", "delivery:EpochDelta", "delivery:Part", "delivery:RefusedRow"),
    *(
        "delivery:SinkBinding",
        "row_changes:Upserts",
        "files:WrittenFile",
        "writing:_Opened",
        "postgres_types:PostgresType",
    ),
    *("pgoutput_columns:LoggedTable", "pgoutput_columns:_Cells", "pgoutput_columns:_ChangesOfTable"),
    *(
        "native_functions:NativeFunction",
        "number_formats:NumberFormat",
        "patterns:Flags",
        "time_formats:FormatPart",
    ),
    *("time_from_text:_ReadFields", "type_names:TypeName"),
    *("time_input:ReadTime", "time_input:Token", "time_input:_Fields"),
    *("delta_log:TableFile", "delta_log:Version", "lake_positions:LakePosition"),
    *(
        "accumulated:Accumulated",
        "closing_windows:ClosedWindows",
        "closing_windows:KeySlices",
        "slices:Slicing",
        "window_spread:WindowParts",
        "sliding_aggregate:_Closing",
        "session_aggregate:_Sessions",
        "triggers:TriggerTime",
        "custom_trigger:TriggerEvent",
        "window_assigners:Assigned",
        "traits:Ready",
        "source:Advance",
        "source:Poll",
        "sample:Sample",
        "source:Split",
        "text_format:CsvHeader",
        "text_format:TextFormat",
    ),
}
GOLDEN = Path(__file__).with_name("tags.txt")


def dataclasses_of(name: str) -> dict[str, type]:
    """Of a module, or of all modules of a package."""
    top = importlib.import_module(f"millpond.{name}")
    inside = pkgutil.walk_packages(getattr(top, "__path__", []), f"{top.__name__}.")
    modules = [top, *(importlib.import_module(info.name) for info in inside)]
    return {
        f"{value.__module__}:{value.__qualname__}": value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__
    }


def test_every_class_has_a_tag_or_is_known_not_to_be_stored() -> None:
    classes = {a: c for name in MODULES for a, c in dataclasses_of(name).items()}
    missing = {a for a in classes if a not in ADDRESSES.values() and a.rpartition(".")[2] not in NEVER}
    assert not missing, "give these a tag in plan/tags.py, or list them here as never stored"
    stale = NEVER - {a.rpartition(".")[2] for a in classes}
    assert not stale


def test_tags_and_addresses_are_unique_and_found() -> None:
    assert len(set(ADDRESSES.values())) == len(ADDRESSES)
    for tag in ADDRESSES:
        assert dataclasses.is_dataclass(class_of(tag)), tag
        assert tag_of(class_of(tag)) == tag


def test_tags_are_never_renamed() -> None:
    golden = GOLDEN.read_text().split()
    gone = set(golden) - set(ADDRESSES)
    assert not gone, "ponds hold these tags: keep them, wherever their classes are now"
    assert sorted(ADDRESSES) == golden, "add new tags to tags.txt; they stay for ever"


def test_every_class_of_format_1_still_has_its_tag() -> None:
    assert set(catalog_v1.TAGS.values()) <= set(ADDRESSES)
    assert len(catalog_v1.TAGS) == 103


def test_a_class_without_a_tag_is_our_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Forgotten:
        x: int

    Forgotten.__module__ = "millpond.operators.forgotten"
    with pytest.raises(InternalError, match="Forgotten has no tag"):
        codec.dumps(Forgotten(1))


def test_a_renamed_class_is_found_under_its_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a refactoring does: the class moves, the address in the table follows, old files go on."""
    raw = codec.dumps(Plan(views={"v": View("v", "s", "t")}))
    assert b"millpond.plan" not in raw and b"View" not in raw
    module = type(millpond)("millpond_moved")

    @dataclasses.dataclass(frozen=True)
    class Shown:
        name: str
        step: str
        table: str
        columns: tuple[tuple[str, str], ...] = ()
        feed: str | None = None
        exact: bool = False
        error_bound: float | None = None

    module.Shown = Shown  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "millpond_moved", module)
    monkeypatch.setitem(ADDRESSES, "view", "millpond_moved:Shown")  # type: ignore[arg-type]
    class_of.cache_clear()
    try:
        assert codec.read(raw).views["v"] == Shown("v", "s", "t")
    finally:
        monkeypatch.undo()
        class_of.cache_clear()


def test_code_that_was_pickled_against_a_moved_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = codec.dumps({"f": millpond.Process})
    code = json.loads(raw)["value"]["$map"][0][1]
    code["$pickle"] = codec._b64(b"cmillpond.once.was.here\nProcess\n.")
    whole = json.dumps(catalog_format.wrapped({"$map": [["f", code]]})).encode()
    assert isinstance(codec.loads(whole)["f"], codec.Unloaded)
    there = ("millpond.process.function", "Process")
    monkeypatch.setitem(MOVED, ("millpond.once.was.here", "Process"), there)  # type: ignore[arg-type]
    assert codec.loads(whole)["f"] is millpond.Process


# -- versions ------------------------------------------------------------------------------


def changed(**more: Any) -> bytes:
    return json.dumps({**json.loads(codec.dumps(Plan())), **more}).encode()


def test_every_catalog_says_its_format_and_who_wrote_it() -> None:
    whole = json.loads(codec.dumps(Plan()))
    assert (whole["format"], whole["written_by"]) == (2, __version__)


def test_a_newer_format_is_refused_and_says_what_is_needed() -> None:
    with pytest.raises(DataError, match="needs another version of Millpond") as caught:
        codec.read(changed(format=3, written_by="7.1.0"))
    assert "format 3" in str(caught.value) and "use Millpond 7.1.0 or newer" in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        {"$": "teleport", "fields": {}},
        {"$": "view", "fields": {"name": "v", "step": "s", "table": "t", "colour": "red"}},
        {"$later": 1},
    ],
)
def test_what_a_newer_version_added_is_refused_and_says_what_is_needed(value: Any) -> None:
    with pytest.raises(DataError, match="needs another version of Millpond") as caught:
        codec.read(changed(value=value, written_by="7.1.0"))
    assert "use Millpond 7.1.0 or newer" in str(caught.value)


@pytest.mark.parametrize("version", [0, 1, "2", None, -1, 2.5])
def test_a_format_that_never_was_is_damage(version: Any) -> None:
    with pytest.raises(DataError):
        codec.read(changed(format=version))


def test_a_tag_is_a_name_of_the_table_and_nothing_else() -> None:
    for tag in ("os:system", "millpond.plan.nodes:Plan", "", "__class__"):
        with pytest.raises(UnknownTagError):
            class_of(tag)
