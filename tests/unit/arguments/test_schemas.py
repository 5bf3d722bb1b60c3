"""Schemas from type hints and samples: known before any row is seen, or refused with what to do."""

from __future__ import annotations

import datetime
import enum
import functools
import typing
import uuid
from collections import namedtuple
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict

import pyarrow as pa
import pytest

from millpond.arguments.schemas import arrow_type, check_parameters, result_schema, returned, schema_of
from millpond.errors import InvalidError
from millpond.flow.samples import sample_schema, sample_table

Price = NewType("Price", float)


@dataclass
class Point:
    x: int
    y: float | None = None


@dataclass
class Shape:
    name: str
    points: list[Point]
    counts: dict[str, int]
    kind: Literal["open", "closed"] = "open"
    note: typing.ClassVar[str] = "not a column"


class Pair(NamedTuple):
    left: str
    right: Price


class Movie(TypedDict):
    title: str
    year: typing.NotRequired[int]


class Colour(enum.Enum):
    RED = 1


@dataclass
class Tree:
    children: list[Tree]


Untyped = namedtuple("Untyped", ["a", "b"])
POINT = pa.struct([("x", pa.int64()), ("y", pa.float64())])


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (int, pa.int64()),
        (float, pa.float64()),
        (str, pa.string()),
        (bool, pa.bool_()),
        (bytes, pa.binary()),
        (datetime.datetime, pa.timestamp("us")),
        (datetime.date, pa.date32()),
        (datetime.time, pa.time64("us")),
        (datetime.timedelta, pa.duration("us")),
        (Decimal, pa.decimal128(38, 9)),
        (Optional[int], pa.int64()),  # noqa: UP045
        (str | None, pa.string()),
        (list[int], pa.list_(pa.int64())),
        (list[list[str] | None], pa.list_(pa.list_(pa.string()))),
        (tuple[int, ...], pa.list_(pa.int64())),
        (dict[str, float], pa.map_(pa.string(), pa.float64())),
        (Literal["a", "b"], pa.string()),
        (Literal[1, None], pa.int64()),
        (Price, pa.float64()),
        (Annotated[Decimal, pa.decimal128(10, 2)], pa.decimal128(10, 2)),
        (Annotated[int, "pieces"], pa.int64()),
        (pa.int8(), pa.int8()),
        (Point, POINT),
        (list[Point], pa.list_(POINT)),
        (Pair, pa.struct([("left", pa.string()), ("right", pa.float64())])),
    ],
)
def test_a_python_type_is_an_arrow_type(hint: Any, kind: pa.DataType) -> None:
    assert arrow_type(hint) == kind


@pytest.mark.parametrize(
    ("hint", "detail", "said"),
    [
        (uuid.UUID, "a UUID is not stored", "write str"),
        (Colour, "an Enum is not stored", ".value"),
        (list, "does not say what it holds", "list[int]"),
        (dict, "does not say what it holds", "dict[str, int]"),
        (int | str, "a column has one type", "choose one"),
        (Literal["a", 1], "more than one plain type", "str or int"),
        (Any, "nothing like it", "pa.DataType"),
        (object, "nothing like it", "pa.DataType"),
        (None, "only None", "other values"),
        ("int", "it is text", "the type itself"),
        (tuple[int, str], "nothing like it", "pa.DataType"),
        ([int], "not a type", "int"),
        (Tree, "it contains itself", "fixed depth"),
    ],
)
def test_what_cannot_be_a_column_is_refused_with_what_can(hint: Any, detail: str, said: str) -> None:
    with pytest.raises(InvalidError, match="cannot be the type of column 'c") as caught:
        schema_of({"c": hint}, step="mine")
    assert detail in (caught.value.detail or "")
    assert said in (caught.value.hint or "")
    assert caught.value.step == "mine"


def test_schemas_are_given_in_many_ways() -> None:
    given = pa.schema([("a", pa.int8())])
    assert schema_of(given) is given
    assert schema_of({"a": int, "b": pa.date32()}) == pa.schema([("a", pa.int64()), ("b", pa.date32())])
    assert schema_of(Point) == pa.schema([("x", pa.int64()), ("y", pa.float64())])
    assert schema_of(Pair) == pa.schema([("left", pa.string()), ("right", pa.float64())])
    assert schema_of(Movie) == pa.schema([("title", pa.string()), ("year", pa.int64())])
    assert schema_of(Shape) == pa.schema(
        [
            ("name", pa.string()),
            ("points", pa.list_(POINT)),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("kind", pa.string()),
        ]
    )


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (3, "this is not a schema"),
        ([("a", int)], "this is not a schema"),
        (int, "this is not a schema"),
        (None, "this is not a schema"),
        (Point(1), "this is not a schema"),
        ({}, "at least one column"),
        ({1: int}, "names of columns are text"),
        (Untyped, "field 'a' of Untyped has no type"),
    ],
)
def test_what_is_no_schema_is_refused(thing: Any, message: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        schema_of(thing, step="mine")
    assert caught.value.step == "mine"


def test_hints_that_cannot_be_read_say_where_to_define_them() -> None:
    @dataclass
    class Local:
        other: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidError, match=r"type hints of .*Local cannot be read") as caught:
        schema_of(Local)
    assert "'Nowhere' is not defined" in (caught.value.detail or "")
    assert "top of the module" in (caught.value.hint or "")


# -- from functions ------------------------------------------------------------------------


def one(row: Any) -> Point: ...  # type: ignore[empty-body]
def maybe(row: Any) -> Point | None: ...
def iterator(row: Any) -> Iterator[Point]: ...  # type: ignore[empty-body]
def iterable(row: Any) -> Iterable[Pair]: ...  # type: ignore[empty-body]
def generator(row: Any) -> Generator[Point, None, None]: ...  # type: ignore[empty-body]
def many(row: Any) -> list[Movie]: ...  # type: ignore[empty-body]
def many_or_none(row: Any) -> list[Point] | None: ...
def silent(row): ...  # type: ignore[no-untyped-def]
def plain(row: Any) -> dict[str, int]: ...  # type: ignore[empty-body]
def nothing(row: Any) -> None: ...
def two(row: Any) -> Point | Pair: ...  # type: ignore[empty-body]
def lists(row: Any) -> list[list[Point]]: ...  # type: ignore[empty-body]
def arrow(rows: pa.Table) -> pa.Table: ...
def elsewhere(row: TypeThatIsNot) -> Point: ...  # type: ignore[name-defined, empty-body]  # noqa: F821


class Callee:
    mark: int = 3

    def __call__(self, row: Any) -> Iterator[Pair]: ...  # type: ignore[empty-body]

    def method(self, row: Any) -> Point: ...  # type: ignore[empty-body]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*arguments: Any) -> Any:
        return function(*arguments)

    return around


@pytest.mark.parametrize(
    ("function", "row", "is_many", "optional"),
    [
        (one, Point, False, False),
        (maybe, Point, False, True),
        (iterator, Point, True, False),
        (iterable, Pair, True, False),
        (generator, Point, True, False),
        (many, Movie, True, False),
        (many_or_none, Point, True, True),
        (elsewhere, Point, False, False),
        (Callee(), Pair, True, False),
        (Callee().method, Point, False, False),
        (functools.partial(one), Point, False, False),
        (decorated(one), Point, False, False),
        (Point, Point, False, False),
    ],
)
def test_a_return_annotation_tells_the_rows(
    function: Callable[..., Any], row: type, is_many: bool, optional: bool
) -> None:
    found = returned(function)
    assert found is not None
    assert (found.row, found.many, found.optional) == (row, is_many, optional)
    assert result_schema(function) == schema_of(row)


@pytest.mark.parametrize("function", [silent, plain, nothing, two, lists, arrow, lambda row: row, len, print])
def test_other_functions_tell_nothing(function: Callable[..., Any]) -> None:
    assert result_schema(function) is None


def test_types_of_the_surrounding_function_are_found_when_it_uses_them() -> None:
    @dataclass
    class Local:
        n: int

    def used(row: Any) -> Iterator[Local]:
        yield Local(1)

    def unused(row: Any) -> Iterator[Hidden]: ...  # type: ignore[name-defined]  # noqa: F821

    assert result_schema(used) == pa.schema([("n", pa.int64())])
    with pytest.raises(InvalidError, match="unused is not known") as caught:
        result_schema(unused, step="mine")
    assert "Hidden" in (caught.value.detail or "")
    assert caught.value.step == "mine"


def test_parameters_are_counted() -> None:
    for good in (one, lambda row, more=1: row, lambda *rows: rows, Callee(), functools.partial(one), len):
        check_parameters(good, "a row")
    for bad in (lambda: 1, lambda a, b: 1, lambda row, *, must: 1, functools.partial(one, 1)):
        with pytest.raises(InvalidError, match="cannot be called with a row") as caught:
            check_parameters(bad, "a row", step="mine")
        assert "function of 1 parameter: a row" in (caught.value.hint or "")
        assert caught.value.step == "mine"
    with pytest.raises(InvalidError, match="a function is needed here"):
        check_parameters("price > 1", "a row")


# -- from samples --------------------------------------------------------------------------


def sampled(*rows: Any) -> pa.Schema:
    return sample_schema(lambda row: row, rows, step="mine")


def test_a_sample_tells_what_arrow_sees() -> None:
    assert sampled({"a": 1, "b": "x"}, {"b": None, "a": 2.5}) == pa.schema(
        [("a", pa.float64()), ("b", pa.string())]
    )
    assert sampled(Point(1)) == schema_of(Point)  # its hints say more than one row does
    assert sampled(Pair("a", Price(1))) == schema_of(Pair)
    assert sampled(Untyped(1, "x")) == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert sampled({"p": Point(1, 2.0)}) == pa.schema([("p", POINT)])
    assert sampled({"d": Decimal("1.10")}) == pa.schema([("d", pa.decimal128(38, 9))])
    assert sampled({"l": [Decimal(1)]}) == pa.schema([("l", pa.list_(pa.decimal128(38, 9)))])
    found = sample_schema(lambda row: [{"n": n} for n in range(row)], [0, 2], many=True)
    assert found == pa.schema([("n", pa.int64())])


@pytest.mark.parametrize(
    ("rows", "message", "detail"),
    [
        ([], "does not determine a schema", "0 sample rows gave no row"),
        ([{"a": 1}, {"a": "x"}], "no single type fits the sample's column 'a'", "values 1, 'x'"),
        ([{"a": 1}, {"b": 1}], "contradicts itself", "returned columns a and then b"),
        ([{"a": None}], "the type of column 'a'", "hold nothing"),
        ([{"a": []}], "the type of column 'a'", "hold nothing"),
        ([{"a": {"b": None}}], "the type of column 'a'", "hold nothing"),
        ([{"a": object()}], "no single type fits the sample's column 'a'", "object"),
        ([(1, 2)], "names of columns", "returned (1, 2)"),
        ([None], "names of columns", "returned None"),
    ],
)
def test_a_sample_that_does_not_tell_is_refused(rows: list[Any], message: str, detail: str) -> None:
    with pytest.raises(InvalidError, match=message) as caught:
        sampled(*rows)
    assert detail in (caught.value.detail or "")
    assert "pass schema=..." in (caught.value.hint or "")
    assert caught.value.step == "mine"


def test_a_function_that_fails_on_the_sample_is_told_with_its_line() -> None:
    def bad(row: Any) -> Any:
        return 1 / row

    with pytest.raises(InvalidError, match="failed on row 2 of the sample") as caught:
        sample_schema(bad, [1.0, 0])
    line = bad.__code__.co_firstlineno + 1
    assert caught.value.detail == f"ZeroDivisionError: division by zero (test_schemas.py:{line})"


STREAM = pa.schema([("k", pa.int64()), ("s", pa.string())])


def test_sample_rows_are_rows_of_the_stream() -> None:
    assert sample_table([{"s": "a"}], STREAM).to_pylist() == [{"k": None, "s": "a"}]
    assert sample_table(pa.table({"k": [1]}), STREAM).to_pylist() == [{"k": 1, "s": None}]
    for bad, message in (
        ([], "the sample is empty"),
        ({"k": 1}, "a sample is a list of rows"),
        (3, "a sample is a list of rows"),
        ([3], "a sample row is a dict"),
        ([{"x": 1}], "no column named 'x'"),
        ([{"k": "a"}], "does not fit column 'k'"),
        ([{"k": 1.5}], "does not fit column 'k'"),
    ):
        with pytest.raises(InvalidError, match=message) as caught:
            sample_table(bad, STREAM, step="mine")
        assert caught.value.step == "mine"
