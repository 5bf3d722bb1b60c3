"""FOR SYSTEM_TIME AS OF PROCTIME(): each row with what the table holds in the epoch in which it comes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond.clock import ManualClock
from millpond.errors import InvalidError
from millpond.operators.lookup_join import LookupJoin
from millpond.operators.operator import Shape
from millpond.plan import codec
from millpond.pond import Pond

TABLES = """
    CREATE TABLE rates (id int PRIMARY KEY, k int, rate int);
    CREATE TABLE orders (id int, k int, n int) APPEND ONLY;
"""
JOIN = "FOR SYSTEM_TIME AS OF PROCTIME()"
INNER = f"SELECT o.id, o.n, r.id AS rid, r.rate FROM orders o JOIN rates {JOIN} AS r ON o.k = r.k"
LEFT = f"SELECT o.id, o.n, r.id AS rid, r.rate FROM orders o LEFT JOIN rates {JOIN} r ON o.k = r.k AND r.rate > o.n"
SUMS = f"""
    WITH joined AS (SELECT o.k, o.n * s.total AS t FROM orders o, sums {JOIN} AS s WHERE s.k = o.k AND o.n > 1)
    SELECT k, count(*), sum(t)::bigint FROM joined GROUP BY k"""
VIEWS = f"""
    CREATE MATERIALIZED VIEW sums AS SELECT k, sum(rate)::bigint AS total FROM rates GROUP BY k;
    CREATE MATERIALIZED VIEW inner_one AS {INNER};
    CREATE MATERIALIZED VIEW left_one AS {LEFT};
    CREATE MATERIALIZED VIEW summed AS {SUMS};
"""
Row = tuple[Any, ...]


def read(pond: Pond, name: str, epoch: int) -> list[Row]:
    return [tuple(row.values()) for row in pond.read(name, epoch=epoch).to_pylist()]


class Model:
    """What the views must hold, epoch by epoch: of each order the rates of the epoch that brought it."""

    def __init__(self) -> None:
        self.epoch = -1
        self.seen: Counter[Row] = Counter()
        self.inner: Counter[Row] = Counter()
        self.left: Counter[Row] = Counter()
        self.sums: dict[Any, list[int]] = {}

    def follow(self, pond: Pond) -> None:
        while self.epoch < pond.epoch:
            self.epoch += 1
            with pond.at(self.epoch) as moment:
                if "left_one" not in moment.views():
                    continue
            orders, rates = read(pond, "orders", self.epoch), read(pond, "rates", self.epoch)
            for order, n in (Counter(orders) - self.seen).items():
                self.come(order, n, rates)
            self.seen = Counter(orders)
            assert Counter(read(pond, "inner_one", self.epoch)) == self.inner, self.epoch
            assert Counter(read(pond, "left_one", self.epoch)) == self.left, self.epoch
            given = {k: [n, total] for k, n, total in read(pond, "summed", self.epoch)}
            assert given == self.sums, self.epoch

    def come(self, order: Row, times: int, rates: list[Row]) -> None:
        id, k, n = order
        same = [r for r in rates if k is not None and r[1] == k]
        for rid, _, rate in same:
            self.inner[(id, n, rid, rate)] += times
        higher = [r for r in same if r[2] is not None and n is not None and r[2] > n]
        for rid, _, rate in higher:
            self.left[(id, n, rid, rate)] += times
        if not higher:
            self.left[(id, n, None, None)] += times
        if same and n is not None and n > 1:
            total = [rate for _, _, rate in same if rate is not None]
            found = self.sums.setdefault(k, [0, None])  # type: ignore[list-item]
            found[0] += times
            if total:
                found[1] = (found[1] or 0) + n * sum(total) * times


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_rows_meet_the_table_of_their_epoch(seed: int, tmp_path: Path) -> None:
    """Also across restarts, compactions and other parallelism; and from the history alone (law 3)."""
    rng, model = random.Random(seed), Model()
    settings: dict[str, Any] = {"engine": "inline", "checks": True, "retain_epochs": 1000}
    pond = millpond.open(tmp_path / "pond", parallelism=2, **settings)
    pond.sql(TABLES + VIEWS)
    for number in range(12):
        orders = [maybe(rng, (rng.randrange(9), rng.randrange(4), rng.randrange(5))) for _ in range(3)]
        rates = {rng.randrange(6): (rng.randrange(4), rng.randrange(1, 9)) for _ in range(rng.randrange(4))}
        if rates:
            listed = [(id, *maybe(rng, pair)) for id, pair in rates.items()]
            pond.sql(f"INSERT INTO rates VALUES {values(listed)}")
        if rng.random() < 0.8:
            pond.sql(f"INSERT INTO orders VALUES {values([(n, *o[1:]) for n, o in enumerate(orders)])}")
        if rng.random() < 0.4:
            pond.sql(f"DELETE FROM rates WHERE id = {rng.randrange(6)}")
        pond.drain()
        model.follow(pond)
        if number % 4 == 1:
            pond.compact()
        if number % 4 == 2:
            pond.close()
            pond = millpond.open(tmp_path / "pond", parallelism=rng.randint(1, 6), **settings)
    assert model.inner and model.sums
    for epoch in range(max(1, pond.epoch - 6), pond.epoch + 1):
        if pond.head().kind == "epoch" and any(s.epoch == epoch and s.rows for s in pond.epochs()):
            assert pond.replay(epoch).same
    pond.close()


CHANGING = {
    "keyed": ("id int PRIMARY KEY, k int, n int, note int", "o.id, o.n"),
    "bag": ("id int, k int, n int, note int", "o.id, o.n"),
}
CHANGING_VIEWS = {
    "inner_one": "SELECT {c}, r.id AS rid, r.rate FROM l o JOIN rates {j} AS r ON o.k = r.k",
    "left_one": "SELECT {c}, r.id AS rid, r.rate FROM l o LEFT JOIN rates {j} AS r ON o.k + 0 = r.k AND r.rate > o.n",
    "uneven": "SELECT {c}, r.id AS rid, r.rate FROM l o JOIN rates {j} AS r ON o.n > r.rate",
    "left_uneven": "WITH l AS (SELECT * FROM l) SELECT {c}, r.id AS rid, r.rate FROM l o LEFT JOIN rates {j} AS r ON o.n > r.rate",
    "crossed": "SELECT {c}, r.id AS rid, r.rate FROM l o CROSS JOIN rates {j} AS r",
}
MEETS: dict[str, Any] = {
    "inner_one": lambda k, n, r: k is not None and r[1] == k,
    "left_one": lambda k, n, r: None not in (k, n, r[2]) and r[1] == k and r[2] > n,
    "uneven": lambda k, n, r: None not in (n, r[2]) and n > r[2],
    "left_uneven": lambda k, n, r: None not in (n, r[2]) and n > r[2],
    "crossed": lambda k, n, r: True,
}


class ChangingModel:
    """What views over a changing left hold: the rows that each left row met when it came.

    A row with a primary key comes again when a column that the view reads changes; a row without one when
    any column does.
    """

    def __init__(self, keyed: bool) -> None:
        self.epoch, self.keyed = -1, keyed
        self.met: set[str] = set()  # views that had rows
        self.held: dict[str, dict[Row, list[list[Row]]]] = {name: {} for name in MEETS}
        self.seen: dict[str, Counter[Row]] = {name: Counter() for name in MEETS}

    def follow(self, pond: Pond) -> None:
        while self.epoch < pond.epoch:
            self.epoch += 1
            with pond.at(self.epoch) as moment:
                if "crossed" not in moment.views():
                    continue
            all_rows, rates = read(pond, "l", self.epoch), read(pond, "rates", self.epoch)
            for name, meets in MEETS.items():
                reads_k = name.endswith("one")
                rows = Counter(
                    (id, k if reads_k or not self.keyed else None, n, None if self.keyed else note)
                    for id, k, n, note in all_rows
                )
                held, seen = self.held[name], self.seen[name]
                self.seen[name] = rows
                for row, times in (seen - rows).items():
                    del held[row][:times]  # of equal rows, the first that came goes first
                for row, times in (rows - seen).items():
                    id, k, n = row[:3]
                    met = [(id, n, r[0], r[2]) for r in rates if meets(k, n, r)]
                    if name.startswith("left"):
                        met = met or [(id, n, None, None)]
                    held.setdefault(row, []).extend([met] * times)
                wanted = Counter(one for arrivals in held.values() for met in arrivals for one in met)
                assert Counter(read(pond, name, self.epoch)) == wanted, (name, self.epoch)
                self.met |= {name} if wanted else set()


@pytest.mark.parametrize("kind", CHANGING)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_a_row_that_goes_takes_what_it_met_with_it(seed: int, kind: str, tmp_path: Path) -> None:
    """Updates and deletes of the left, of the table, restarts, compactions and other parallelism; replays."""
    rng = random.Random(seed)
    model = ChangingModel(kind == "keyed")
    settings: dict[str, Any] = {"engine": "inline", "checks": True, "retain_epochs": 1000}
    pond = millpond.open(tmp_path / "pond", parallelism=2, **settings)
    columns, shown = CHANGING[kind]
    pond.sql(f"CREATE TABLE rates (id int PRIMARY KEY, k int, rate int); CREATE TABLE l ({columns})")
    pond.sql(
        "INSERT INTO rates VALUES (1, 1, 1), (2, 2, 4); INSERT INTO l VALUES (1, 1, 3, 0), (2, 1, 2, 0); FLUSH"
    )
    for name, query in CHANGING_VIEWS.items():
        pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {query.format(c=shown, j=JOIN)}")
    for number in range(12):
        id, k = rng.randrange(6), rng.randrange(3)
        for statement in rng.sample(
            [
                f"INSERT INTO l VALUES {values([maybe(rng, (0, k, rng.randrange(5), number))]).replace('(0', f'({id}').replace('(NULL', f'({id}')}",
                f"INSERT INTO l VALUES ({id}, {k}, 2, 0)",
                f"UPDATE l SET n = n + 1 WHERE id = {id}",
                f"UPDATE l SET note = {number} WHERE id < 3",
                f"DELETE FROM l WHERE id = {rng.randrange(6)}",
                f"INSERT INTO rates VALUES ({id}, {k}, {rng.randrange(6)})",
                f"UPDATE rates SET rate = {rng.randrange(6)} WHERE k = {k}",
                f"DELETE FROM rates WHERE id = {id}",
            ],
            3,
        ):
            pond.sql(statement)
        pond.drain()
        model.follow(pond)
        if number % 4 == 1:
            pond.compact()
        if number % 4 == 2:
            pond.close()
            pond = millpond.open(tmp_path / "pond", parallelism=rng.randint(1, 5), **settings)
    assert model.met == MEETS.keys()
    for epoch in range(max(1, pond.epoch - 4), pond.epoch + 1):
        if any(s.epoch == epoch and s.rows for s in pond.epochs()):
            assert pond.replay(epoch).same
    pond.sql("DELETE FROM l; FLUSH")
    model.follow(pond)
    pond.compact()
    left = {(s.step, s.state): s.rows for s in pond.states() if "memory" in s.step}
    assert not any(left.values()), f"nothing is remembered of rows that are gone: {left}"
    pond.close()


def maybe(rng: random.Random, row: Row) -> Row:
    return tuple(None if rng.random() < 0.1 else value for value in row)


def values(rows: list[Row]) -> str:
    return ", ".join(f"({', '.join('NULL' if v is None else str(v) for v in row)})" for row in rows)


def test_a_view_that_comes_later_finds_the_table_whole(tmp_path: Path) -> None:
    """Rows that were there before it meet the table as it is then, however small the pieces."""
    pond = millpond.open(tmp_path / "pond", engine="inline", parallelism=3, epoch_rows_max=20)
    pond.sql(TABLES)
    pond.sql(f"INSERT INTO orders VALUES {values([(n, n % 7, n % 5) for n in range(200)])}")
    pond.sql(f"INSERT INTO rates VALUES {values([(n, n % 7, n) for n in range(100)])}; FLUSH")
    pond.sql("UPDATE rates SET rate = rate + 1; FLUSH")
    left_first = INNER.replace("FROM orders o", "FROM (SELECT id, k + 0 AS k, n FROM orders) o")
    pond.sql(f"CREATE MATERIALIZED VIEW inner_one AS {left_first}")
    plain = "SELECT o.id, o.n, r.id, r.rate FROM orders o JOIN rates r ON o.k = r.k"
    found = Counter(pond.sql("FROM inner_one").fetchall())
    assert found == Counter(pond.sql(plain).fetchall()) and found
    pond.sql("UPDATE rates SET rate = 0; INSERT INTO orders VALUES (500, 3, 1); FLUSH")
    after = Counter(pond.sql("FROM inner_one").fetchall())
    assert {row[0] for row in after - found} == {500} and not found - after
    with pytest.raises(InvalidError, match="both sides of the join read"):
        pond.sql(
            "CREATE VIEW top AS SELECT k, max(n) AS n FROM orders GROUP BY k;"
            f" CREATE MATERIALIZED VIEW again AS SELECT o.id FROM orders o JOIN top {JOIN} AS m ON o.k = m.k"
        )
    pond.close()


BESIDE = {
    "behind": f"SELECT o.id, r.rate, m.x FROM orders o JOIN rates {JOIN} AS r ON o.k = r.k JOIN more m ON m.k = o.k",
    "before": f"SELECT o.id, r.rate, m.x FROM more m JOIN (orders o JOIN rates {JOIN} AS r ON o.k = r.k) ON m.k = o.k",
    "listed": f"SELECT o.id, r.rate, m.x FROM orders o, rates {JOIN} AS r, more m WHERE m.k = r.k AND o.k = r.k",
}


@pytest.mark.parametrize("kind", ["", " APPEND ONLY"])
@pytest.mark.parametrize("how", BESIDE)
def test_a_row_comes_when_the_left_of_its_own_join_does(how: str, kind: str, tmp_path: Path) -> None:
    """What else the query joins may come later, and may change: the table is that of the row's epoch."""
    pond = millpond.open(tmp_path / "pond", engine="inline", checks=True)
    pond.sql(f"{TABLES}; CREATE TABLE more (k int, x int){kind}; CREATE MATERIALIZED VIEW v AS {BESIDE[how]}")
    pond.sql("INSERT INTO rates VALUES (1, 1, 5); FLUSH; INSERT INTO orders VALUES (1, 1, 1); FLUSH")
    pond.sql("UPDATE rates SET rate = 6; FLUSH; INSERT INTO more VALUES (1, 7); FLUSH")
    assert pond.sql("FROM v").fetchall() == [(1, 5, 7)]
    pond.sql("INSERT INTO orders VALUES (2, 1, 1); FLUSH")
    assert sorted(pond.sql("FROM v").fetchall()) == [(1, 5, 7), (2, 6, 7)]
    if not kind:
        pond.sql("UPDATE more SET x = 8; FLUSH")
        assert sorted(pond.sql("FROM v").fetchall()) == [(1, 5, 8), (2, 6, 8)]
    pond.close()


REFUSED = {
    f"SELECT * FROM rates {JOIN}": "is for the right side of JOIN and LEFT JOIN",
    f"SELECT * FROM rates {JOIN} WHERE rate > 1": "is for the right side of JOIN and LEFT JOIN",
    f"SELECT o.id FROM orders o RIGHT JOIN rates {JOIN} AS r ON o.k = r.k": "is for the right side of JOIN",
    f"SELECT id FROM orders WHERE k IN (SELECT k FROM rates {JOIN})": "is for the right side of JOIN",
    "SELECT o.id FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.k = r.k": "and no other time",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_has_no_such_meaning_is_refused(query: str, tmp_path: Path) -> None:
    pond = millpond.open(tmp_path / "pond", engine="inline")
    pond.sql(TABLES)
    with pytest.raises(InvalidError) as told:
        pond.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert REFUSED[query] in told.value.message
    assert pointed_at(told.value).startswith("FOR SYSTEM_TIME")
    pond.close()


def pointed_at(error: InvalidError) -> str:
    """What the mark below the user's text stands under; the text is shown as it was written."""
    assert error.detail is not None and "millpond." not in str(error)
    *_, text, mark = error.detail.splitlines()
    assert set(mark.strip()) == {"^"}
    return text[mark.index("^") : mark.rindex("^") + 1]


def test_a_refusal_points_at_the_join_that_it_is_about(tmp_path: Path) -> None:
    good, bad = (
        f"JOIN rates {JOIN} AS r ON o.k = r.k",
        "RIGHT JOIN rates for  system_time as of now() s ON o.n > 1",
    )
    other = "JOIN rates FOR SYSTEM_TIME AS OF o.at AS s ON o.k = s.k"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(TABLES)
        pond.sql(f"CREATE VIEW alone AS SELECT * FROM rates {JOIN}")
        for query, mark in {
            f"SELECT o.id, 'é' AS e FROM orders o {good} {bad}": "for  system_time as of now()",
            f"SELECT 'é' AS e, o.id FROM orders o {bad} {good}": "for  system_time as of now()",
            f"SELECT 'é' AS e, o.id FROM orders o {other} {good}": "FOR SYSTEM_TIME",
            f"SELECT o.id, o.n, r.id FROM orders o {good}": "r.id",
            f"SELECT * FROM orders o {good}": "*",
        }.items():
            for kind in ("VIEW", "MATERIALIZED VIEW"):
                if kind == "VIEW" and bad in query:
                    continue  # what a join means is asked when it is kept
                with pytest.raises(InvalidError) as told:
                    pond.sql(f"CREATE {kind} v AS {query}")
                assert pointed_at(told.value) == mark, told.value
        with pytest.raises(InvalidError, match="is for the right side") as told:
            pond.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM alone")
        assert "^" not in str(told.value), "it stands in another text"


def test_conditions_on_now_are_asked_of_what_was_joined(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    pond = millpond.open(tmp_path / "pond", engine="inline", clock=clock)
    pond.sql(TABLES.replace("n int) APPEND", "n int, at timestamptz DEFAULT now()) APPEND"))
    pond.sql(f"""
        CREATE MATERIALIZED VIEW v AS SELECT o.id, r.rate FROM orders o JOIN rates {JOIN} AS r ON o.k = r.k
          WHERE o.at > now() - INTERVAL '1 minute';
        INSERT INTO rates VALUES (1, 1, 5);
        INSERT INTO orders (id, k, n) VALUES (1, 1, 1);
        FLUSH
    """)
    assert pond.sql("FROM v").fetchall() == [(1, 5)]
    pond.sql("UPDATE rates SET rate = 6; FLUSH")
    clock.advance(60_000_000)
    pond.drain()
    assert pond.sql("FROM v").fetchall() == []
    pond.close()


def test_it_is_stored_with_the_plan() -> None:
    shape = Shape(pa.schema([("k", pa.int64()), ("x", pa.int64())]), append_only=True)
    operator = LookupJoin(("k",), ("k",), "left", (("a", 0, "x"), ("b", 1, "x")), "a < b", "v")
    binding = operator.bind("j", (shape, shape))
    assert codec.loads(codec.dumps(operator)) == operator
    assert codec.loads(codec.dumps(binding)) == binding
    with pytest.raises(InvalidError, match="can be retracted"):
        operator.bind("j", (Shape(shape.schema, append_only=False), shape))


def test_a_table_is_looked_up_twice_by_a_view_that_is_added_later(tmp_path: Path) -> None:
    """The second lookup reads rows of the first, which arrive with the payments and not with the rates."""
    query = """SELECT p.id, p.cents * a.rate / b.rate AS cents FROM payments AS p
        JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS a ON a.currency = p.source
        LEFT JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS b ON b.currency = p.target"""
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE rates (currency text PRIMARY KEY, rate int)")
        pond.sql("CREATE TABLE payments (id int, source text, target text, cents int) APPEND ONLY")
        pond.sql(
            "INSERT INTO rates VALUES ('eur', 4), ('usd', 2); INSERT INTO payments VALUES (1, 'eur', 'usd', 5); FLUSH"
        )
        pond.sql(f"CREATE MATERIALIZED VIEW paid AS {query}")
        pond.sql("UPDATE rates SET rate = 1 WHERE currency = 'usd'; FLUSH")
        pond.sql("INSERT INTO payments VALUES (2, 'eur', 'usd', 5), (3, 'usd', 'gbp', 5); FLUSH")
        assert sorted(pond.sql("FROM paid").fetchall()) == [(1, 10), (2, 20), (3, None)]
        with pytest.raises(InvalidError, match="its input was already read"):
            pond.sql(
                "CREATE MATERIALIZED VIEW pairs AS SELECT a.rate FROM rates a JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() b ON a.currency = b.currency"
            )
