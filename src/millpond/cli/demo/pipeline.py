"""The demo's pipeline, and the same views as one batch query: the one is checked against the other."""

from __future__ import annotations

import pyarrow as pa

from millpond.cli.demo.feed import DemoFeed
from millpond.clock import Clock
from millpond.kernels.duck import connect
from millpond.pond import Pond
from millpond.state.manifest.manifest import Manifest

TOP = 10
BATCH = {
    "auction_bids": """
        SELECT auction, count(*) AS bids, sum(price)::BIGINT AS revenue, max(price) AS highest
        FROM bids GROUP BY auction""",
    "category_prices": """
        SELECT category, count(*) AS bids, sum(price)::DOUBLE / count(*) AS average, max(price) AS highest
        FROM bids JOIN auctions ON bids.auction = auctions.id GROUP BY category""",
    "top_auctions": f"""
        SELECT auction, count(*) AS bids, sum(price)::BIGINT AS revenue, max(price) AS highest
        FROM bids GROUP BY auction ORDER BY revenue DESC, auction LIMIT {TOP}""",
}


def define(pond: Pond, feed: DemoFeed, clock: Clock) -> None:
    """Bids and revenue of each auction, the ten with most, and prices by category through a join."""
    bids = pond.stream("bids", feed.source("bids", clock))
    auctions = pond.stream("auctions", feed.source("auctions", clock))
    per_auction = bids.key_by("auction").aggregate(
        bids="count(*)", revenue="sum(price)", highest="max(price)", id="per_auction"
    )
    per_auction.view("auction_bids")
    per_auction.top_n(TOP, "revenue desc", id="most_revenue").view("top_auctions")
    bids.join(auctions, on=[("auction", "id")], id="bids_with_auctions").key_by("category").aggregate(
        bids="count(*)", average="avg(price)", highest="max(price)", id="per_category"
    ).view("category_prices")


def batch(feed: DemoFeed, manifest: Manifest) -> dict[str, pa.Table]:
    """Every view, by one query of DuckDB over exactly the events that an epoch accounts for."""
    with connect({}) as database:
        for step, columns in (("bids", ["auction", "price"]), ("auctions", ["id", "category"])):
            database.register(step, feed.rows(step, feed.taken(manifest.positions, step), columns))
        return {view: database.sql(query).to_arrow_table() for view, query in BATCH.items()}


def same(ours: pa.Table, theirs: pa.Table) -> bool:
    """Equal as multisets of rows."""
    order = [(name, "ascending") for name in theirs.column_names]
    fitted = theirs.select(ours.column_names).cast(ours.schema)
    return bool(ours.sort_by(order).combine_chunks().equals(fitted.sort_by(order).combine_chunks()))
