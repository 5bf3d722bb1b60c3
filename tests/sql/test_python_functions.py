"""pond.function: Python in SQL, scalar, aggregate and table functions (laws 1, 4 and 9)."""

from __future__ import annotations

import collections
import datetime
import decimal
import math
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import millpond
from millpond.errors import DataError, InvalidError, MillpondError
from millpond.pond import Pond
from millpond.sql.binding.functions import check_known
from tests.sampling import first
from tests.sql.function_world import FunctionWorld, Row
from tests.sql.world import Rows, plain


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", checks=True) as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY, x int, s text)")
        made.sql("INSERT INTO t VALUES (1, 10, 'a c'), (2, 20, 'q'), (3, NULL, NULL); FLUSH")
        yield made


@pytest.fixture(scope="module")
def empty() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline") as made:
        yield made


def rows(pond: Pond, sql: str) -> list[tuple[Any, ...]]:
    return pond.sql(sql).fetchall()


# -- functions that the tests use ------------------------------------------------------------


def count_of(text: str, what: str = "c") -> int:
    return text.count(what)


def odd_ones_fail(x: int) -> int:
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x // 2


@dataclass
class Part:
    word: str
    place: int


def parts(text: str) -> Iterator[Part]:
    for place, word in enumerate(text.split("-")):
        yield Part(word, place)


class Spread:
    """The greatest less the least; no value can be taken back."""

    def __init__(self) -> None:
        self.low: int | None = None
        self.high: int | None = None

    def accumulate(self, x: int) -> None:
        self.low = x if self.low is None else min(self.low, x)
        self.high = x if self.high is None else max(self.high, x)

    def finish(self) -> int | None:
        return None if self.low is None or self.high is None else self.high - self.low


def add(state: list[float], x: float, weight: float = 1.0) -> None:
    state[0] += x * weight
    state[1] += weight


def take(state: list[float], x: float, weight: float = 1.0) -> None:
    add(state, x, -weight)


def mean(state: list[float]) -> float | None:
    return state[0] / state[1] if state[1] else None


class Fragile:
    """A sum that cannot be told of 5."""

    def __init__(self) -> None:
        self.total = 0

    def accumulate(self, x: int) -> None:
        if x == 5:
            raise ValueError("five")
        self.total += x

    def retract(self, x: int) -> None:
        self.total -= x

    def finish(self) -> int:
        return self.total


def define(pond: Pond) -> None:
    pond.function(count_of)
    pond.function("parts", parts)
    pond.function("spread", Spread)
    pond.function("half", odd_ones_fail)
    pond.function("fragile", Fragile)
    pond.function("weighted", init=lambda: [0.0, 0.0], accumulate=add, retract=take, finish=mean)
    pond.function(
        "vadd", lambda a, b: pc.add(a, b), arguments=["BIGINT", pa.int64()], returns=int, vectorised=True
    )
    pond.function("whole", lambda x, s: f"{x}/{s}", arguments=[int, str], returns=str, nulls=True)


# -- under change ------------------------------------------------------------------------------


def spread(values: list[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return max(known) - min(known) if known else None


def by_text(table: list[Row]) -> dict[str | None, list[Row]]:
    found: dict[str | None, list[Row]] = collections.defaultdict(list)
    for row in table:
        found[row[2]].append(row)
    return found


def scalars(table: list[Row]) -> Rows:
    def one(n: int, x: int | None, s: str | None) -> tuple[Any, ...]:
        return n, s and s.count("c") if s != "" else 0, None if x is None else x + n, f"{x}/{s}"

    return plain(one(*row) for row in table if row[2] is None or row[2].count("c") < 3)


def halves(table: list[Row]) -> Rows:
    return plain((n, None if x is None else x // 2) for n, x, _ in table if x is None or x % 2 == 0)


def guarded(table: list[Row]) -> Rows:
    return plain((n, x // 2 if x is not None and x % 2 == 0 else -1) for n, x, _ in table)


def words(table: list[Row]) -> Rows:
    return plain((n, w, p) for n, _, s in table if s is not None for p, w in enumerate(s.split("-")))


def words_or_none(table: list[Row]) -> Rows:
    found = []
    for n, _, s in table:
        found += [(n, w) for w in s.split("-")] if s is not None else [(n, None)]
    return plain(found)


def grouped(table: list[Row]) -> Rows:
    return plain(
        (s, spread([x for _, x, _ in g]), spread([x for n, x, _ in g if n > 4]), len(g))
        for s, g in by_text(table).items()
    )


def overall(table: list[Row]) -> Rows:
    known = [(x, n) for n, x, _ in table if x is not None]
    weight = sum(n for _, n in known)
    mean = sum(x * n for x, n in known) / weight if weight else None
    return plain([(spread([x for _, x, _ in table]), mean, spread(list({x for _, x, _ in table})))])


def running(table: list[Row]) -> Rows:
    return plain((n, spread([y for m, y, t in table if t == s and m <= n])) for n, _, s in table)


def weighted_mean(group: list[Row]) -> float | None:
    known = [(x, n) for n, x, _ in group if x is not None]
    weight = sum(n for _, n in known)
    return sum(x * n for x, n in known) / weight if weight else None


def mixed(table: list[Row]) -> Rows:
    found = []
    for s, group in by_text(table).items():
        if (mean := weighted_mean(group)) is not None:
            found.append(
                (
                    s,
                    mean,
                    len(group),
                    weighted_mean([r for r in group if r[0] > 4]),
                    spread([r[1] for r in group]),
                )
            )
    return plain(found)


def whole_groups(table: list[Row]) -> Rows:
    groups = {s: [x for _, x, _ in g if x is not None] for s, g in by_text(table).items()}
    return plain((s, sum(g)) for s, g in groups.items() if 5 not in g)


VIEWS = {
    "a": (
        "SELECT id, count_of(s) AS c, vadd(x, id) AS v, whole(x, s) AS w FROM t"
        " WHERE count_of(s, what := 'c') < 3 OR s IS NULL",
        scalars,
    ),
    "b": ("SELECT id, half(x) AS h FROM t", halves),
    "c": ("SELECT id, CASE WHEN x % 2 = 0 THEN half(x) ELSE -1 END AS h FROM t", guarded),
    "d": ("SELECT t.id, p.word, p.place FROM t, parts(t.s) AS p", words),
    "e": ("SELECT id, w FROM t LEFT JOIN LATERAL parts(s) AS p(w, n) ON true", words_or_none),
    "f": (
        "SELECT s, spread(x) AS a, spread(x) FILTER (WHERE id > 4) AS b, count(*) AS n FROM t GROUP BY s",
        grouped,
    ),
    "g": (
        "SELECT spread(x) AS a, weighted(x, id) AS m, spread(DISTINCT x) AS d FROM t",
        overall,
    ),
    "i": (
        "SELECT s, weighted(x, id) AS m, count(*) AS n, weighted(x, id) FILTER (WHERE id > 4) AS f, spread(x) AS p"
        " FROM t GROUP BY s HAVING weighted(x, id) IS NOT NULL",
        mixed,
    ),
    "j": ("SELECT s, fragile(x) AS n FROM t GROUP BY s", whole_groups),
    "h": ("SELECT id, spread(x) OVER (PARTITION BY s ORDER BY id) AS r FROM t", running),
}


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_views_with_python_are_the_batch_answers(seed: int, tmp_path: Path) -> None:
    """Also without registering the functions again after a restart: the program holds them (law 4)."""
    FunctionWorld(tmp_path / "pond", define, VIEWS, seed).run(5)


def test_an_aggregate_that_takes_back_costs_the_change(pond: Pond) -> None:
    """Law 5: rows that were there are not looked at again; nor are they where none can go."""
    told: list[tuple[str, int]] = []

    class Sum:
        def __init__(self) -> None:
            self.total = 0

        def accumulate(self, x: int) -> None:
            told.append(("came", x))
            self.total += x

        def finish(self) -> int:
            return self.total

    class Both(Sum):
        def retract(self, x: int) -> None:
            told.append(("went", x))
            self.total -= x

    pond.function("total", Both, arguments={"x": int})
    pond.function("grows", Sum, arguments={"x": int})
    kept = pond.session.catalog.objects["total"].options["calls"][0]
    assert kept.retracts
    pond.sql(
        "CREATE TABLE log (x int) APPEND ONLY; CREATE MATERIALIZED VIEW g AS SELECT grows(x) AS y FROM log"
    )
    pond.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT total(x) AS y FROM t; INSERT INTO log VALUES (1), (2); FLUSH"
    )
    told.clear()
    pond.sql("UPDATE t SET x = 11 WHERE id = 1; INSERT INTO log VALUES (3); FLUSH")
    assert rows(pond, "SELECT y FROM v") == [(31,)] and rows(pond, "SELECT y FROM g") == [(6,)]
    assert sorted(told) == [("came", 3), ("came", 11), ("went", 10)]


# -- what they take and give ----------------------------------------------------------------------


def test_every_type_goes_in_and_comes_out(pond: Pond) -> None:
    values = {
        "BIGINT": 2**40, "HUGEINT": 2**80, "DOUBLE": 0.5, "BOOLEAN": True, "VARCHAR": "é", "BLOB": b"\0x",
        "DATE": datetime.date(2024, 2, 29), "TIMESTAMP": datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
        "TIME": datetime.time(1, 2, 3), "DECIMAL(10,2)": decimal.Decimal("1.25"), "INTEGER[]": [1, None],
        "STRUCT(a INTEGER, b VARCHAR)": {"a": 1, "b": "x"}, "MAP(VARCHAR, INTEGER)": {"k": 1},
    }  # fmt: skip
    for number, (kind, value) in enumerate(values.items()):
        pond.function(f"f{number}", lambda given: given, arguments=[kind], returns=kind, nulls=True)
        ((found, kept),) = rows(
            pond, f"SELECT f{number}(v), f{number}(NULL) FROM (SELECT {_literal(value, kind)} AS v)"
        )
        assert found == value and kept is None, kind
    pond.function("i", lambda given: given, arguments=["UUID"], returns="UUID")
    one = uuid.uuid4()
    assert pond.sql("SELECT i(?)", params=[one]).fetchall() == [(one,)]


def _literal(value: Any, kind: str) -> str:
    from millpond.sql.text.parameters import literal_of

    if kind.startswith("MAP"):
        return "MAP {'k': 1}"
    return f"CAST({literal_of(value)} AS {kind})"


def test_decorators_hints_and_defaults(pond: Pond) -> None:
    @pond.function
    def plus(a: int, b: int = 5) -> int:
        return a + b

    @pond.function("Tens", kind="table", returns={"n": "INTEGER", "t": str})
    def tens(upto: int) -> list[tuple[int, str]]:
        return [(n, f"#{n}") for n in range(10, upto + 1, 10)]

    @pond.function(returns=int)
    def singles(n: int):  # type: ignore[no-untyped-def]
        yield from range(n)

    assert plus(1) == 6
    assert rows(pond, "SELECT plus(1), plus(1, 2), plus(b := 1, a := 1)") == [(6, 3, 2)]
    assert rows(pond, "SELECT * FROM tens(25)") == [(10, "#10"), (20, "#20")]
    assert rows(pond, "SELECT sum(singles) FROM singles(4)") == [(6,)]
    assert rows(pond, "SELECT t.n FROM t, LATERAL tens(x) AS t ORDER BY n") == [(10,), (10,), (20,)]
    shown = {row[0]: row[1:] for row in rows(pond, "SHOW FUNCTIONS")}
    assert shown["plus"] == ("scalar", "python", "plus(a BIGINT, b BIGINT DEFAULT 5)", "BIGINT")
    assert shown["Tens"] == ("table", "python", "Tens(upto BIGINT)", "TABLE(n INTEGER, t VARCHAR)")


def test_errors_are_rows_with_the_users_line(pond: Pond) -> None:
    pond.function("half", odd_ones_fail)
    pond.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT id, half(x) AS h FROM t; INSERT INTO t VALUES (4, 7, ''); FLUSH"
    )
    assert sorted(rows(pond, "SELECT id FROM v")) == [(1,), (2,), (3,)]
    (error,) = pond.errors("v").to_pylist()
    assert error["step"].startswith("v.") and '"id":4' in error["row"].replace(" ", "")
    line = odd_ones_fail.__code__.co_firstlineno + 2
    assert error["reason"] == f"half(): ValueError: 7 is odd (test_python_functions.py:{line})"
    with pytest.raises(InvalidError, match=r"half\(\): ValueError: 7 is odd"):
        pond.sql("SELECT half(x) FROM t")
    pond.sql("UPDATE t SET x = 8 WHERE id = 4; FLUSH")
    assert pond.errors("v").num_rows == 0 and len(rows(pond, "SELECT * FROM v")) == 4


def test_wrong_results_are_told(pond: Pond) -> None:
    pond.function("word", lambda x: "no", arguments=[int], returns=int)
    pond.function("short", lambda x: x.slice(1), arguments=[int], returns=int, vectorised=True)
    pond.function("flat", lambda x: 5, arguments=[int], returns={"a": int}, kind="table")
    for call, told in (
        ("word(1)", "word():"),
        ("short(x)", "short(): ValueError: returned 2 values for 3 rows"),
    ):
        with pytest.raises(InvalidError) as caught:
            pond.sql(f"SELECT {call} FROM t")
        assert told in str(caught.value)
    with pytest.raises(InvalidError, match="must give an iterable of rows, gave int"):
        pond.sql("SELECT * FROM flat(1)")


def test_what_stops_is_not_a_row_error(pond: Pond) -> None:
    """A lack of memory, or an error of ours, ends the statement as what it is; what only wants to end does not."""

    def stop(x: int) -> int:
        raise KeyboardInterrupt

    def full(x: int) -> int:
        raise MemoryError

    def ours(x: int) -> int:
        raise DataError("a broken file")

    pond.function(stop)
    pond.function(full)
    pond.function(ours)
    with pytest.raises(InvalidError, match=r"stop\(\): KeyboardInterrupt \(test_python_functions"):
        pond.sql("SELECT stop(x) FROM t")
    with pytest.raises(MemoryError):
        pond.sql("SELECT full(x) FROM t")
    with pytest.raises(DataError, match="a broken file"):
        pond.sql("SELECT ours(x) FROM t")
    with pytest.raises(MillpondError, match="a broken file"):
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT ours(x) AS y FROM t; FLUSH")


def test_in_changes_and_in_functions_of_sql(pond: Pond) -> None:
    pond.function(count_of)
    pond.sql("CREATE FUNCTION cs(s text) RETURNS bigint RETURN count_of(s) * 10")
    pond.sql(
        "CREATE VIEW p AS SELECT id, cs(s) AS n FROM t; CREATE MATERIALIZED VIEW m AS SELECT id, cs(s) AS n FROM t"
    )
    pond.sql("UPDATE t SET x = cs(s) WHERE count_of(s) = 1; INSERT INTO t VALUES (9, cs('ccc'), 'cc'); FLUSH")
    assert sorted(rows(pond, "SELECT id, x FROM t WHERE id <> 3")) == [(1, 10), (2, 20), (9, 30)]
    for name in ("p", "m"):
        assert sorted(rows(pond, f"SELECT * FROM {name} WHERE n > 0")) == [(1, 10), (9, 20)]


def test_a_change_that_waits_keeps_its_function_or_is_refused(pond: Pond) -> None:
    """It would mean something else in a process that never had the function (law 3)."""
    pond.function("f", lambda x: x + 1, arguments=[int], returns=int)
    pond.sql(
        "UPDATE t SET x = f(x) WHERE id = 1; DROP FUNCTION f; UPDATE t SET s = 'done' WHERE id = 1; FLUSH"
    )
    assert rows(pond, "SELECT x, s FROM t WHERE id = 1") == [(11, "done")]  # in their order
    with pytest.raises(InvalidError, match=r"f\(\) was replaced or dropped meanwhile"):
        check_known('UPDATE t SET x = "f#0123456789ab"(x)', pond.session.catalog.objects.values())


# -- as time goes on ------------------------------------------------------------------------------


def test_registering_again_and_replacing(pond: Pond) -> None:
    """The same function is no change; another one counts for what is created afterwards."""
    pond.function("f", lambda x: x + 1, arguments=[int], returns=int)
    pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id, f(x) AS y FROM t")
    pond.function(Spread)
    epoch = pond.epoch
    pond.function(Spread)
    assert pond.epoch == epoch
    pond.function("f", lambda x: x * 100, arguments=[int], returns=int)
    pond.sql("UPDATE t SET x = 5 WHERE id = 1; FLUSH")
    assert rows(pond, "SELECT y, f(y) FROM v WHERE id = 1") == [(6, 600)]
    with pytest.raises(InvalidError, match="others use it"):
        pond.sql("DROP FUNCTION f")
    pond.sql("DROP FUNCTION f CASCADE")
    assert rows(pond, "SHOW VIEWS") == []


SECOND = """
import sys, millpond
with millpond.open(sys.argv[1], engine="inline") as pond:
    pond.sql("INSERT INTO t VALUES (7, 1, 'c-c'); FLUSH")
    print(sorted(pond.sql("SELECT id, n FROM v").fetchall()), pond.sql("SELECT local('x')").fetchall())
"""


def test_another_process_runs_them(tmp_path: Path) -> None:
    """What no module holds goes by its code; what a module holds, by its name: that must be there."""
    with millpond.open(tmp_path / "p", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, x int, s text)")
        by = 2
        pond.function("local", lambda s: s * by, arguments=[str], returns=str)
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT id, local(s) AS n FROM t")
    done = subprocess.run(
        [sys.executable, "-c", SECOND, str(tmp_path / "p")], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[(7, 'c-cc-c')] [('xx',)]", done.stderr[-2000:]


def test_code_that_is_not_here_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_module.py").write_text("def theirs(x: int) -> int:\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import their_module  # type: ignore[import-not-found]

    with millpond.open(tmp_path / "p", engine="inline") as pond:
        pond.sql("CREATE TABLE t (x int)")
        pond.function(their_module.theirs)
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT theirs(x) AS y FROM t")
    script = (
        "import sys, millpond\npond = millpond.open(sys.argv[1], engine='inline')\n"
        "print(pond.sql('SELECT count(*) FROM t').fetchall())\ntry:\n    pond.sql('SELECT theirs(1)')\n"
        "except millpond.DataError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "p")],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert "[(0,)]" in done.stdout and "No module named 'their_module'" in done.stdout, done.stderr[-2000:]


# -- mistakes -----------------------------------------------------------------------------------------


def untyped(x, y):  # type: ignore[no-untyped-def]
    return x


async def later(x: int) -> int:
    return x


def odd_type(x: object) -> int:
    return 1


def anything(*given: int) -> int:
    return 1


def no_columns(x: int) -> Iterator[tuple[int, str]]:
    yield 1, "a"


class Half:
    def accumulate(self, x: int) -> None: ...


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        (untyped, {}, "the type of parameter 'x' of f() is not known"),
        (untyped, {"arguments": [int, int]}, "the type of what it returns of f() is not known"),
        (untyped, {"arguments": [int], "returns": int}, "takes other arguments than declared"),
        (untyped, {"arguments": [int, "FOO"], "returns": int}, "no type named 'FOO'"),
        (untyped, {"arguments": "BIGINT"}, "arguments are a list or a dict"),
        (later, {}, "later is async"),
        (odd_type, {}, "the type of parameter 'x' of f() is not known"),
        (anything, {}, "the parameters of anything cannot be told"),
        (no_columns, {}, "cannot be told"),
        (parts, {"kind": "scalar"}, "is a generator"),
        (parts, {"vectorised": True}, "only scalar functions can be vectorised"),
        (Half, {}, "f() is no aggregate"),
        (count_of, {"kind": "aggregate"}, "f() is no aggregate"),
        (count_of, {"kind": "window"}, "no kind of function named 'window'"),
        (count_of, {"arguments": ["INTERVAL", str]}, "cannot be an INTERVAL"),
        (7, {}, "f() needs a function"),
        (count_of, {"init": list}, "needs init, accumulate and finish"),
    ],
)
def test_mistakes_are_told(given: Any, options: dict[str, Any], told: str, empty: Pond) -> None:
    with pytest.raises(InvalidError) as caught:
        empty.function("f", given, **options)
    assert told in str(caught.value)


def test_names_that_are_taken(pond: Pond) -> None:
    for name, told in (
        ("lower", "is built in"),
        ("to_char", "is built in"),
        ("text", "is built in"),
        ("t", "there is a table named 't'"),
        ('a"b', "needs a name"),
    ):
        with pytest.raises(InvalidError, match=told):
            pond.function(name, count_of)
    pond.function("twice", lambda x: x * 2, arguments=[float], returns=float)
    with pytest.raises(InvalidError, match=r"twice\(\) takes 1 argument, there are 2"):
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT twice(x, x) FROM t")
    assert math.isclose(rows(pond, "SELECT twice(0.5)")[0][0], 1.0)
