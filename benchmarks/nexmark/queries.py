"""The queries of Nexmark: what each asks, what it reads, and when its answer counts as right.

Law: a query is text, one file for each system that says it in its own way; what DuckDB answers over the same
files is right. `duckdb/` holds only queries that cannot be asked there as they are asked of Millpond.

Checks:
    rows    the rows that stand at the end, as a multiset
    closed  the same, of windows that have ended for every system: four seconds behind the newest event
    shape   the time of the machine decides the rows: for no bidder more bids than there are

q13 looks the side table up as of when a bid comes, as the benchmark's own does; Spark has no such join, and
joins the streams.

In two places the queries are not the benchmark's own. q10 computes the rows with their partition and discards
them, as all do; it writes no files. q14 counts letters by an expression of each system and not by a user's
function.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.contenders import require_known

HERE = Path(__file__).parent
ON_CLOSE = "EMIT ON WINDOW CLOSE"
Check = Literal["rows", "closed", "shape"]


@dataclass(frozen=True)
class Query:
    name: str
    asks: str
    reads: tuple[str, ...] = ("bid",)
    check: Check = "rows"
    ends: str = ""  # of a row of windows: when its window ends, in terms of its columns


def _ten_seconds(column: str) -> str:
    return f"time_bucket(INTERVAL 10 SECOND, {column}) + INTERVAL 10 SECOND"


_BOTH, _PEOPLE = ("auction", "bid"), ("auction", "person")
QUERIES = {
    one.name: one
    for one in (
        Query("q0", "bids as they are"),
        Query("q1", "prices in another currency"),
        Query("q2", "bids on some auctions"),
        Query("q3", "auctions of a category by sellers of three states", _PEOPLE),
        Query("q4", "average winning bid per category", _BOTH),
        Query("q5", "hottest auctions per sliding window", check="closed", ends="endtime"),
        Query("q6", "average of each seller's last ten winning bids", _BOTH),
        Query("q7", "highest bids per window", check="closed", ends=_ten_seconds("date_time")),
        Query("q8", "new people who sell", _PEOPLE, "closed", "starttime + INTERVAL 10 SECOND"),
        Query("q9", "winning bid per auction", _BOTH),
        Query("q10", "bids with day and minute"),
        Query("q11", "bids per bidder and session", check="closed", ends="endtime"),
        Query("q12", "bids per bidder and window of processing time", check="shape"),
        Query("q13", "bids with a side table", ("bid", "side_input")),
        Query("q14", "some bids, computed"),
        Query("q15", "bids, bidders and auctions per day"),
        Query("q16", "the same per channel and day"),
        Query("q17", "prices per auction and day"),
        Query("q18", "latest bid per bidder and auction"),
        Query("q19", "ten highest bids per auction"),
        Query("q20", "bids with their auction", _BOTH),
        Query("q21", "channel ids by regular expression"),
        Query("q22", "parts of the url"),
    )
}
STATELESS = ("q0", "q1", "q2", "q14", "q21", "q22")
GROUPS = {
    "stateless": STATELESS,
    "stateful": tuple(name for name in QUERIES if name not in STATELESS),
    "large joins": ("q4", "q9", "q20"),
}


def path(system: str, query: str) -> Path:
    found = HERE / system / f"{query}.sql"
    if system == "duckdb" and not found.exists():
        return HERE / "millpond" / f"{query}.sql"
    return found


def text(system: str, query: str) -> str:
    return path(system, query).read_text().strip()


def choose(names: str) -> list[Query]:
    """
    >>> [one.name for one in choose("q2,q0")]
    ['q0', 'q2']
    """
    wanted = list(QUERIES) if names == "all" else names.split(",")
    require_known("query", wanted, QUERIES)
    return [QUERIES[name] for name in QUERIES if name in wanted]
