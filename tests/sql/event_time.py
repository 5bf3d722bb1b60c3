"""Two streams with watermarks, views over their windows, and the same in DuckDB over the rows that were on time.

The model decides by itself what is late and which windows are over: a row is late when it lies before the
bound that the epoch before left behind, and the bound is the newest time on time less the delay.
"""

from __future__ import annotations

import datetime
import random
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import millpond
from millpond.plan.final_rows import is_final
from tests.sql.world import in_types_of, plain

DELAY_S = 4
START = datetime.datetime(2024, 1, 1, 14, 59, 30)  # 30 seconds before the end of a day in Tokyo
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
STREAMS = ("a", "b")

OURS = {
    "T": "TUMBLE({}, ts, INTERVAL '10 seconds')",
    "H": "HOP({}, ts, INTERVAL '5 seconds', INTERVAL '10 seconds')",
    "L": "HOP({}, ts, INTERVAL '2 seconds', INTERVAL '25 seconds')",
    "S": "SESSION({}, ts, INTERVAL '3 seconds', k)",
    "C": "CUMULATE({}, ts, INTERVAL '5 seconds', INTERVAL '15 seconds')",
    "D": "CALENDAR({}, ts, 'day', 'Asia/Tokyo')",
    "R": "{}",
}
TUMBLED = "time_bucket(INTERVAL 10 SECOND, ts)"
THEIRS = {
    "T": f"(select * from (select *, {TUMBLED} window_start, {TUMBLED} + INTERVAL 10 SECOND window_end from {{0}}) where {{1}})",
    "H": """(select * from (select q.*, s window_start, s + INTERVAL 10 SECOND window_end from {0} q, unnest(generate_series(
      time_bucket(INTERVAL 5 SECOND, ts) - INTERVAL 5 SECOND, ts, INTERVAL 5 SECOND)) x(s)) where {1})""",
    "L": """(select * from (select q.*, s window_start, s + INTERVAL 25 SECOND window_end from {0} q, unnest(generate_series(
      time_bucket(INTERVAL 2 SECOND, ts) - INTERVAL 24 SECOND, ts, INTERVAL 2 SECOND)) x(s)
      where s + INTERVAL 25 SECOND > ts) where {1})""",
    "S": """(select * exclude (n, gap) from (select *, min(ts) over (partition by k, n) window_start,
      max(ts) over (partition by k, n) + INTERVAL 3 SECOND window_end
      from (select *, sum(gap) over (partition by k order by ts range unbounded preceding) n
        from (select *, case when ts - lag(ts) over (partition by k order by ts) <= INTERVAL 3 SECOND then 0 else 1 end gap
          from {0}))) where {1})""",
    "C": """(select * from (select q.*, time_bucket(INTERVAL 15 SECOND, ts) window_start, e window_end from {0} q,
      unnest(generate_series(time_bucket(INTERVAL 5 SECOND, ts) + INTERVAL 5 SECOND,
        time_bucket(INTERVAL 15 SECOND, ts) + INTERVAL 15 SECOND, INTERVAL 5 SECOND)) x(e)) where {1})""",
    "D": """(select * from (select *, date_trunc('day', ts + INTERVAL 9 HOUR) - INTERVAL 9 HOUR window_start,
      date_trunc('day', ts + INTERVAL 9 HOUR) + INTERVAL 15 HOUR window_end from {0}) where {1})""",
    "R": "(select * from (select *, ts window_end from {0}) where {1})",
}  # fmt: skip
WINDOW = re.compile(r"\b([THLSCDR])([ab])\b")


class Streams:
    """A query names windows as Ta, Hb, La, Sa: of ten seconds, of ten every five, of 25 every two, sessions of three per k,
    Ca, Da: windows that grow by five seconds up to fifteen, and days of Tokyo; Ra: its rows."""

    def __init__(
        self,
        path: Path,
        seed: int,
        views: dict[str, str],
        on_close: dict[str, str],
        later: float = 0.0,
        **options: Any,
    ) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.options = options
        self.con = duckdb.connect()
        self.con.execute("set timezone = 'UTC'")
        self.now = 0.0
        self.told = 0  # the epoch of the last check
        self.bounds: dict[str, datetime.datetime] = {}
        self.late = dict.fromkeys(STREAMS, 0)
        every = {**views, **on_close}
        self.later = {n: q for n, q in every.items() if self.rng.random() < later}
        self.views = {n: q for n, q in every.items() if n not in self.later}
        self.on_close = frozenset(on_close)
        self.pond = self.opened()
        for name in STREAMS:
            self.con.execute(f"create table {name} (k varchar, ts timestamp, v bigint)")
            self.pond.sql(
                f"CREATE TABLE {name} (k text, ts timestamp, v bigint,"
                f" WATERMARK FOR ts AS ts - INTERVAL '{DELAY_S} seconds') APPEND ONLY"
            )
        self.con.execute("create table d (k varchar, name varchar)")
        self.pond.sql("CREATE TABLE d (k text PRIMARY KEY, name text)")
        self.define(self.views)

    def define(self, views: dict[str, str]) -> None:
        ends = {n: " EMIT ON WINDOW CLOSE" if n in self.on_close else "" for n in views}
        texts = [f"CREATE MATERIALIZED VIEW {n} AS {self.ours(q)}{ends[n]}" for n, q in views.items()]
        self.pond.sql(";\n".join(texts))

    def define_rest(self) -> None:
        """Views that come later are filled from what there is."""
        self.define(self.later)
        self.views, self.later = {**self.views, **self.later}, {}

    def opened(self) -> millpond.Pond:
        tasks = self.rng.choice([1, 2, 3])
        options = {"checks": True, **self.options}
        return millpond.open(self.path, engine="inline", parallelism=tasks, **options)

    # -- one epoch ------------------------------------------------------------------------

    def epoch(self, rows: int = 12) -> None:
        """Rows out of order, some of them late; a few changes of the table without time."""
        rng = self.rng
        self.now += rng.choice([0, 2, 5, 11])
        if rng.random() < 0.3:
            k, name = rng.choice("xyz"), rng.choice(["one", "two"])
            self.pond.sql(f"INSERT INTO d VALUES ('{k}', '{name}')")
            self.con.execute(f"delete from d where k = '{k}'")
            self.con.execute(f"insert into d values ('{k}', '{name}')")
        self.push(*(rng.choice([0, rows, rows]) for _ in STREAMS))

    def push(self, *rows: int) -> None:
        """So many rows of each stream, in one epoch."""
        sent = self.send(*rows)
        self.pond.drain()
        self.account(sent)

    def send(self, *rows: int) -> dict[str, list[dict[str, Any]]]:
        """So many rows of each stream, for an epoch to come."""
        sent = {}
        for name, count in zip(STREAMS, rows if len(rows) > 1 else rows * len(STREAMS), strict=True):
            sent[name] = [self.row() for _ in range(count)]
            if sent[name]:
                self.pond.insert(name, pa.Table.from_pylist(sent[name], SCHEMA))
        return sent

    def account(self, sent: dict[str, list[dict[str, Any]]]) -> None:
        """What was sent is in an epoch."""
        for name, fresh in sent.items():
            bound = self.bounds.get(name)
            on_time = [r for r in fresh if bound is None or r["ts"] >= bound]
            self.late[name] += len(fresh) - len(on_time)
            if on_time:
                newest = max(r["ts"] for r in on_time) - datetime.timedelta(seconds=DELAY_S)
                self.bounds[name] = newest if bound is None else max(bound, newest)
                self.con.register("fresh", pa.Table.from_pylist(on_time, SCHEMA))
                self.con.execute(f"insert into {name} from fresh")

    def row(self) -> dict[str, Any]:
        at = self.now + self.rng.choice([0, 1, 2, 3, 3.5, -2, -5, -9])
        return {
            "k": self.rng.choice("xyz"),
            "ts": START + datetime.timedelta(seconds=max(at, 0)),
            "v": self.rng.randrange(6),
        }

    def disturb(self) -> None:
        """What must make no difference: restarts, compactions, another parallelism."""
        what = self.rng.choice(["", "", "restart", "compact", "rescale"])
        if what == "restart":
            self.pond.close()
            self.pond = self.opened()
        elif what == "compact":
            self.pond.compact()
        elif what == "rescale":
            self.pond.rescale(self.rng.choice([1, 2, 3]))

    # -- what must be there -------------------------------------------------------------------

    def ours(self, query: str) -> str:
        return WINDOW.sub(lambda m: OURS[m[1]].format(m[2]), query)

    def theirs(self, query: str, closed: bool) -> str:
        used = {stream for _, stream in WINDOW.findall(query)}

        def written(m: re.Match[str]) -> str:
            if not closed:
                return THEIRS[m[1]].format(m[2], "true")
            if not used <= self.bounds.keys():
                return THEIRS[m[1]].format(m[2], "false")
            least = min(self.bounds[s] for s in used)
            sign = "<" if m[1] in "SR" else "<="
            return THEIRS[m[1]].format(m[2], f"window_end {sign} TIMESTAMP '{least}'")

        return WINDOW.sub(written, query)

    def check(self, context: str) -> None:
        for name, query in self.views.items():
            batch = self.theirs(query, name in self.on_close)
            wanted = plain(self.con.execute(batch).fetchall())
            given = plain(in_types_of(self.con, batch, self.pond.sql(f"SELECT * FROM {name}").arrow()))
            assert given == wanted, (
                f"{context} {name}: {query}\nmissing {list((wanted - given).items())[:4]}\n"
                f"too many {list((given - wanted).items())[:4]}\nerrors {self.pond.errors().to_pylist()[:2]}"
            )
        for name in self.on_close & self.views.keys():
            if is_final(self.pond.plan, self.pond.plan.views[name].step):
                for delta in self.pond.changes(name, since=self.told):
                    weights = delta.table.column("_w").to_pylist()
                    assert min(weights) > 0, f"{context} {name} took rows back: {self.views[name]}"
        self.told = self.pond.status.epoch or 0
        for name in STREAMS:
            found = self.pond.sql(f"SELECT count(*) FROM {name}_late").fetchone()
            assert found == (self.late[name],), f"{context}: late rows of {name}"
        listed = self.pond.sql("SHOW LATE").fetchall()
        assert listed == [(f"{n}_late", self.late[n], self.bounds.get(n)) for n in STREAMS], context

    def states(self) -> dict[str, int]:
        """Rows of state by step and table; the tables that are views, and late rows, are left out."""
        shown = {(v.step, v.table.rpartition("/")[2]) for v in self.pond.plan.views.values()}
        self.pond.compact()
        return {
            f"{s.step}/{s.state}": s.rows
            for s in self.pond.states()
            if (s.step, s.state) not in shown and s.state != "late"
        }

    def close(self) -> None:
        self.pond.close()
        self.con.close()
