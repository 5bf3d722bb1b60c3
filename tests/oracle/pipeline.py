"""Pipelines of every kind of view, each with the batch query that it must equal (law 1).

Two sources and two tables feed them: `a` can retract rows, `e` has event time
and rows that come late, `t` has a key, `m` has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.flow.stream import Stream
from millpond.pond import Pond
from millpond.sources.memory import MemorySource
from millpond.windows import sliding

A = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("x", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("p", pa.string()),
    ]
)
E = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("v", pa.int64()), ("u", pa.string())])
T = pa.schema([("k", pa.int64()), ("name", pa.string()), ("rate", pa.decimal128(9, 2))])
M = pa.schema([("k", pa.int64()), ("tag", pa.string())])
DELAY_S = 6


@dataclass(frozen=True)
class Streams:
    a: Stream
    e: Stream
    t: Stream
    m: Stream


@dataclass(frozen=True)
class ViewCase:
    """A view and its batch query over a, e (what was on time), t and m; `{bound}` is e's watermark."""

    name: str
    define: Callable[[Streams], Stream]
    sql: str
    key: str | None = None


def _doubled(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    return pa.table([table["k"], pc.multiply(table["x"], 2)], names=["k", "twice"])


def _letters(row: Any) -> Iterator[tuple[Any, ...]]:
    if row.p == "oops":
        raise ValueError("no letters in here")
    for letter in row.s or "":
        yield row.k, letter


def _is_text(row: Any) -> Any:
    if row.p == "oops":
        raise ValueError("no text in here")
    return row.s


def _ways(s: Streams) -> Stream:
    """Every row of `a` with the way it went; those on which a condition fails go none."""
    ways = s.a.branch("x > 0", _is_text, id="ways")
    one, two, rest = (way.select("k", "s", "x", way=str(n)) for n, way in enumerate(ways))
    return one.union(two, rest)


@dataclass
class Marked:
    k: int | None
    marks: list[str]
    x: int | None


def _marked(row: Any) -> Marked:
    return Marked(row.k, [row.s or "", "!"], row.x)


def _most(a: Any, b: Any) -> dict[str, Any]:
    """The larger; not known is less than anything."""
    return {"x": max((v for v in (a.x, b.x) if v is not None), default=None)}


def _spread(key: Any, rows: pa.Table) -> pa.Table:
    found = [x for x in rows["x"].to_pylist() if x is not None]
    return pa.table(
        {"k": pa.array([key.k], pa.int64()), "most": pa.array([max(found, default=None)], pa.int64())}
    )


ORDERED = "x desc nulls last, k nulls last, s nulls last, f nulls last, d nulls last, p nulls last"
AGGREGATES: dict[str, Any] = {
    "n": "count(*)",
    "cx": "count(x)",
    "sx": "sum(x)",
    "ax": "avg(x)",
    "lo": "min(x)",
    "hi": "max(x)",
    "sf": "sum(f)",
    "sd": "sum(d)",
    "ls": "min(s)",
    "hf": "max(f)",
}
SHOWN = ", ".join(f"{text} as {name}" for name, text in AGGREGATES.items())
SPREADS: dict[str, Any] = {
    "vp": "var_pop(x)",
    "vs": "var_samp(f)",
    "dp": "stddev_pop(d)",
    "ds": "stddev_samp(x)",
}
DISTINCTS: dict[str, Any] = {
    "cx": "count(distinct x)",
    "sx": "sum(distinct x)",
    "cs": "count(distinct s)",
    "ck": "count(distinct k)",
    "lx": "min(distinct x)",
    "n": "count(*) filter (where x > 0)",
    "g": "sum(x + 1)",
}


def _shown(aggregates: dict[str, str]) -> str:
    return ", ".join(f"{text} as {name}" for name, text in aggregates.items())


def _join(kind: Any, where: str | None = None, **options: Any) -> Callable[[Streams], Stream]:
    return lambda s: s.a.select("k", "s", "x").join(
        s.e.select("k", "v", "u"), "k", kind, where=where, **options
    )


def _joined(kind: str, where: str | None = None) -> str:
    on = "l.k = r.k" if where is None else f"l.k = r.k and ({where})"
    shown = {
        "inner": "l.k, l.s, l.x, r.v, r.u",
        "left": "l.k, l.s, l.x, r.v, r.u",
        "right": "l.k, l.s, l.x, r.k as k_right, r.v, r.u",
        "full": "l.k, l.s, l.x, r.k as k_right, r.v, r.u",
        "semi": "l.k, l.s, l.x",
        "anti": "l.k, l.s, l.x",
    }[kind]
    return f"select {shown} from a l {kind} join e r on {on}"


def _windowed(sql: str, size: int, slide: int) -> str:
    """A query over w: e's rows, once for each window that holds them."""
    starts = f"generate_series(epoch_us(ts) // {slide * 1000000} - {-(-size // slide)}, epoch_us(ts) // {slide * 1000000})"
    at = f"make_timestamp(n * {slide * 1000000})"
    return (
        f"with w as (select *, {at} as window_start, {at} + interval {size} second as window_end"
        f" from (select *, unnest({starts}) as n from e)"
        f" where ts >= {at} and ts < {at} + interval {size} second) {sql}"
    )


VIEWS: tuple[ViewCase, ...] = (
    ViewCase("a_rows", lambda s: s.a, "select * from a"),
    ViewCase(
        "a_by_s", lambda s: s.a.select("s", "x", half="f / 2"), "select s, x, f / 2 as half from a", key="s"
    ),
    ViewCase("e_rows", lambda s: s.e, "select * from e"),
    ViewCase("t_rows", lambda s: s.t, "select * from t"),
    ViewCase("m_rows", lambda s: s.m, "select * from m"),
    ViewCase(
        "agg", lambda s: s.a.key_by("k").aggregate(**AGGREGATES), f"select k, {SHOWN} from a group by k"
    ),
    ViewCase(
        "agg_e",
        lambda s: s.e.key_by("k").aggregate(n="count(*)", lo="min(v)", hi="max(u)", sv="sum(v)"),
        "select k, count(*) as n, min(v) as lo, max(u) as hi, sum(v) as sv from e group by k",
    ),
    ViewCase(
        "agg_hot",
        lambda s: s.a.key_by("s").aggregate(buckets=4, lo="min(x)", hi="max(d)", n="count(*)"),
        "select s, min(x) as lo, max(d) as hi, count(*) as n from a group by s",
    ),
    ViewCase(
        "agg_two",
        lambda s: s.a.key_by("s", "k").aggregate(n="count(*)", hi="max(d)", sx="sum(x)"),
        "select s, k, count(*) as n, max(d) as hi, sum(x) as sx from a group by s, k",
    ),
    ViewCase(
        "agg_dec",
        lambda s: s.a.key_by("d").aggregate(n="count(*)", sf="sum(f)"),
        "select d, count(*) as n, sum(f) as sf from a group by d",
    ),
    ViewCase(
        "spreads",
        lambda s: s.a.key_by("k").aggregate(**SPREADS),
        f"select k, {_shown(SPREADS)} from a group by k",
    ),
    ViewCase(
        "distincts",
        lambda s: s.a.key_by("k").aggregate(**DISTINCTS),
        f"select k, {_shown(DISTINCTS)} from a group by k",
    ),
    ViewCase("total", lambda s: s.a.aggregate(**AGGREGATES), f"select {SHOWN} from a"),
    ViewCase(
        "total_distinct",
        lambda s: s.a.aggregate(c="count(distinct s)", n="count(*)"),
        "select count(distinct s) as c, count(*) as n from a",
    ),
    ViewCase("counted", lambda s: s.e.aggregate(n="count(*)"), "select count(*) as n from e"),
    ViewCase("inner", _join("inner"), _joined("inner")),
    ViewCase("left", _join("left"), _joined("left")),
    ViewCase("right", _join("right"), _joined("right")),
    ViewCase("full", _join("full"), _joined("full")),
    ViewCase("semi", _join("semi"), _joined("semi")),
    ViewCase("anti", _join("anti"), _joined("anti")),
    ViewCase("inner_where", _join("inner", "x < v"), _joined("inner", "l.x < r.v")),
    ViewCase("left_where", _join("left", "x < v"), _joined("left", "l.x < r.v")),
    ViewCase("full_where", _join("full", "x < v"), _joined("full", "l.x < r.v")),
    ViewCase("broadcast", _join("left", broadcast="right"), _joined("left")),
    ViewCase(
        "inner_t",
        lambda s: s.a.join(s.t, "k").key_by("name").aggregate(n="count(*)", sx="sum(x)", sr="sum(rate)"),
        "select name, count(*) as n, sum(x) as sx, sum(rate) as sr from a join t using (k) group by name",
    ),
    ViewCase(
        "t_full_m",
        lambda s: s.t.join(s.m, "k", "full"),
        "select t.k, name, rate, m.k as k_right, tag from t full join m on t.k = m.k",
    ),
    ViewCase(
        "t_semi_a", lambda s: s.t.join(s.a, "k", "semi"), "select * from t where k in (select k from a)"
    ),
    ViewCase(
        "self_join",
        lambda s: (
            s.a.select("k", "x")
            .join(s.a.select("k", y="x"), "k")
            .key_by("k")
            .aggregate(n="count(*)", m="max(x + y)")
        ),
        "select l.k, count(*) as n, max(l.x + r.x) as m from a l join a r on l.k = r.k group by l.k",
    ),
    ViewCase(
        "agg_join",
        lambda s: (
            s.a.key_by("k")
            .aggregate(n="count(*)", sx="sum(x)")
            .join(s.e.key_by("k").aggregate(c="count(*)", sv="sum(v)"), "k", "left")
        ),
        "select * from (select k, count(*) as n, sum(x) as sx from a group by k)"
        " left join (select k, count(*) as c, sum(v) as sv from e group by k) using (k)",
    ),
    ViewCase(
        "agg_agg",
        lambda s: (
            s.a.key_by("k")
            .aggregate(n="count(*)", lo="min(x)")
            .key_by("n")
            .aggregate(keys="count(*)", lo="min(lo)")
        ),
        "select n, count(*) as keys, min(lo) as lo from (select k, count(*) as n, min(x) as lo from a group by k) group by n",
    ),
    ViewCase(
        "top_agg",
        lambda s: s.a.key_by("k").aggregate(n="count(*)", sx="sum(x)").top_n(2, "sx desc"),
        "select k, count(*) as n, sum(x) as sx from a group by k order by sx desc nulls last, k nulls last, n limit 2",
    ),
    ViewCase("distinct", lambda s: s.a.distinct("k", "s"), "select distinct k, s from a"),
    ViewCase("distinct_e", lambda s: s.e.distinct("k", "u"), "select distinct k, u from e"),
    ViewCase(
        "top",
        lambda s: s.a.key_by("k").top_n(2, "x desc"),
        f"select * from a qualify row_number() over (partition by k order by {ORDERED}) <= 2",
    ),
    ViewCase(
        "top_ties",
        lambda s: s.a.key_by("k").top_n(2, "x desc", with_ties=True, rank="place"),
        "select *, rank() over (partition by k order by x desc nulls last) as place from a"
        " qualify place <= 2",
    ),
    ViewCase(
        "top_offset",
        lambda s: s.a.key_by("s").top_n(1, "x desc", offset=1, rank="place"),
        f"select *, row_number() over (partition by s order by {ORDERED}) as place from a qualify place = 2",
    ),
    ViewCase("top_all", lambda s: s.a.top_n(3, ["x desc"]), f"select * from a order by {ORDERED} limit 3"),
    ViewCase(
        "top_e",
        lambda s: s.e.key_by("k").top_n(1, "v"),
        "select * from e qualify row_number() over (partition by k order by v nulls last, ts, u nulls last) = 1",
    ),
    ViewCase(
        "first",
        lambda s: s.a.key_by("k").first("x desc"),
        f"select * from a qualify row_number() over (partition by k order by {ORDERED}) = 1",
    ),
    ViewCase(
        "first_e",
        lambda s: s.e.key_by("k").first("v desc"),
        "select k, ts, v, u from e qualify row_number() over (partition by k order by v desc nulls last, ts, u nulls last) = 1",
    ),
    ViewCase(
        "apply",
        lambda s: s.a.key_by("k").apply(
            sql="select k, count(distinct s) as c, max(x) - min(x) as span from input group by k"
        ),
        "select k, count(distinct s) as c, max(x) - min(x) as span from a group by k",
    ),
    ViewCase(
        "apply_python",
        lambda s: s.a.key_by("k").apply(_spread, pa.schema([("k", pa.int64()), ("most", pa.int64())])),
        "select k, max(x) as most from a group by k",
    ),
    ViewCase(
        "union",
        lambda s: (
            s.a.select("k", n="x")
            .union(s.e.select("k", n="v"))
            .key_by("k")
            .aggregate(c="count(n)", m="max(n)")
        ),
        "select k, count(n) as c, max(n) as m from (select k, x as n from a union all select k, v from e) group by k",
    ),
    ViewCase(
        "union_self",
        lambda s: s.a.select("k", "x").union(s.a.select("k", "x")),
        "select k, x from a union all select k, x from a",
    ),
    ViewCase(
        "join_self",
        lambda s: s.a.select("k", "x").join(s.a.select("k", "x"), "k", "full"),
        "select l.k, l.x, r.k as k_right, r.x as x_right from a l full join a r on l.k = r.k",
    ),
    ViewCase("same_again", lambda s: s.a.distinct("k", "s"), "select distinct k, s from a"),
    ViewCase(
        "keyed_again",
        lambda s: s.a.key_by("k").aggregate(n="count(*)", hi="max(x)"),
        "select k, count(*) as n, max(x) as hi from a group by k",
        key="n",
    ),
    ViewCase(
        "distinct_join",
        lambda s: s.a.distinct("k").join(s.e.distinct("k", "u"), "k", "left").distinct("u"),
        "select distinct u from (select distinct k from a) left join (select distinct k, u from e) using (k)",
    ),
    ViewCase(
        "top_window",
        lambda s: (
            s.e.tumble("10s")
            .key_by("window_start")
            .top_n(2, ["v desc", "ts"])
            .select("window_start", "ts", "v")
        ),
        _windowed(
            "select window_start, ts, v from w qualify row_number() over"
            " (partition by window_start order by v desc nulls last, ts, k nulls last, u nulls last) <= 2",
            10,
            10,
        ),
    ),
    ViewCase(
        "union_levels",
        lambda s: s.a.key_by("k").aggregate(n="count(*)").union(s.e.select("k", n="v")),
        "select k, count(*) as n from a group by k union all select k, v from e",
    ),
    ViewCase(
        "parsed",
        lambda s: s.a.select("k", y="cast(p as integer)", id="parse"),
        "select k, try_cast(p as integer) as y from a where p is null or try_cast(p as integer) is not null",
    ),
    ViewCase(
        "parsed_filter",
        lambda s: s.a.filter("cast(p as integer) > 3", id="sieve").key_by("k").aggregate(n="count(*)"),
        "select k, count(*) as n from a where try_cast(p as integer) > 3 group by k",
    ),
    ViewCase(
        "batches",
        lambda s: s.a.map_batches(_doubled, pa.schema([("k", pa.int64()), ("twice", pa.int64())])),
        "select k, x * 2 as twice from a",
    ),
    ViewCase(
        "letters",
        lambda s: s.a.flat_map(_letters, pa.schema([("k", pa.int64()), ("letter", pa.string())]), id="spell"),
        "select k, unnest(string_split(s, '')) as letter from a where p is distinct from 'oops' and s <> ''",
    ),
    ViewCase(
        "ways",
        _ways,
        "select k, s, x, case when x > 0 then 0 when s <> '' then 1 else 2 end as way from a"
        " where x > 0 or p is distinct from 'oops'",
    ),
    ViewCase(
        "python_filter",
        lambda s: s.a.filter(lambda row: row.x is not None and row.x < 3).key_by("k").aggregate(n="count(*)"),
        "select k, count(*) as n from a where x < 3 group by k",
    ),
    ViewCase("python_map", lambda s: s.a.map(_marked), "select k, [coalesce(s, ''), '!'] as marks, x from a"),
    ViewCase(
        "reduce",
        lambda s: s.a.select("k", "x").key_by("k").reduce(_most),
        "select k, max(x) as x from a group by k",
    ),
    ViewCase(
        "computed_key",
        lambda s: s.a.key_by("s", third="x % 3").aggregate(n="count(*)", m="max(k)"),
        "select s, x % 3 as third, count(*) as n, max(k) as m from a group by all",
    ),
    ViewCase(
        "tumble",
        lambda s: (
            s.e.tumble("10s").key_by("window_start", "k").aggregate(n="count(*)", sv="sum(v)", hi="max(v)")
        ),
        _windowed(
            "select window_start, k, count(*) as n, sum(v) as sv, max(v) as hi from w group by all", 10, 10
        ),
    ),
    ViewCase(
        "hop",
        lambda s: s.e.hop("10s", "4s").key_by("window_end").aggregate(n="count(*)", du="count(distinct u)"),
        _windowed("select window_end, count(*) as n, count(distinct u) as du from w group by all", 10, 4),
    ),
    ViewCase(
        "close",
        lambda s: (
            s.e.tumble("10s").key_by("window_end", "k").aggregate(on_close=True, n="count(*)", lo="min(v)")
        ),
        _windowed(
            "select window_end, k, count(*) as n, min(v) as lo from w"
            " where epoch_us(window_end) <= {bound} group by all",
            10,
            10,
        ),
    ),
    ViewCase(
        "close_sliced",  # from rows that are retracted when another one of the same time comes
        lambda s: (
            s.e.key_by("k", "ts")
            .aggregate(c="count(*)", part="sum(v)")
            .key_by("k")
            .window(sliding("16s", "2s"), on_close=True, time="ts")
            .aggregate(n="sum(c)", sv="sum(part)")
        ),
        _windowed(
            "select k, window_start, window_end, count(*) as n, sum(v) as sv from w"
            " where epoch_us(window_end) <= {bound} group by all",
            16,
            2,
        ),
    ),
    ViewCase(
        "close_hop",
        lambda s: (
            s.e.hop("10s", "4s").key_by("window_end").aggregate(on_close=True, n="count(*)", sv="sum(v)")
        ),
        _windowed(
            "select window_end, count(*) as n, sum(v) as sv from w"
            " where epoch_us(window_end) <= {bound} group by all",
            10,
            4,
        ),
    ),
    ViewCase(
        "close_distinct",
        lambda s: (
            s.e.tumble("5s")
            .key_by("window_end")
            .aggregate(on_close=True, du="count(distinct u)", n="count(*)")
        ),
        _windowed(
            "select window_end, count(distinct u) as du, count(*) as n from w"
            " where epoch_us(window_end) <= {bound} group by all",
            5,
            5,
        ),
    ),
    ViewCase(
        "close_close",
        lambda s: (
            s.e.tumble("10s")
            .key_by("window_end", "k")
            .aggregate(on_close=True, n="count(*)")
            .filter("n > 0")
            .key_by("window_end")
            .aggregate(on_close=True, keys="count(*)", most="max(n)")
        ),
        _windowed(
            "select window_end, count(*) as keys, max(n) as most from (select window_end, k, count(*) as n from w"
            " where epoch_us(window_end) <= {bound} group by all) group by window_end",
            10,
            10,
        ),
    ),
    ViewCase(
        "close_rare",
        lambda s: (
            s.e.hop("9s", "6s")
            .select("window_end", "u")
            .distinct()
            .key_by("window_end")
            .aggregate(on_close=True, kinds="count(u)", n="count(*)")
        ),
        _windowed(
            "select window_end, count(u) as kinds, count(*) as n from (select distinct window_end, u from w)"
            " where epoch_us(window_end) <= {bound} group by window_end",
            9,
            6,
        ),
    ),
    ViewCase(
        "close_then",
        lambda s: (
            s.e.tumble("10s")
            .key_by("window_end", "k")
            .aggregate(on_close=True, n="count(*)")
            .key_by("k")
            .aggregate(windows="count(*)", most="max(n)")
        ),
        _windowed(
            "select k, count(*) as windows, max(n) as most from (select window_end, k, count(*) as n from w"
            " where epoch_us(window_end) <= {bound} group by all) group by k",
            10,
            10,
        ),
    ),
)

# The steps that can make error rows, with the query that counts them.
ERRORS = {
    "parsed": ("parse", "select count(*) from a where p is not null and try_cast(p as integer) is null"),
    "parsed_filter": (
        "sieve",
        "select count(*) from a where p is not null and try_cast(p as integer) is null",
    ),
    "ways": ("ways", "select count(*) from a where p = 'oops' and (x > 0) is not true"),
    "letters": ("spell", "select count(*) from a where p = 'oops'"),
}


def build(pond: Pond, a: MemorySource, e: MemorySource, cases: Iterable[ViewCase]) -> None:
    streams = Streams(
        pond.stream("a", a),
        pond.stream("e", e, event_time="ts", delay=DELAY_S),
        pond.table("t", T, key="k"),
        pond.table("m", M),
    )
    for case in cases:
        case.define(streams).view(case.name, key=case.key)
