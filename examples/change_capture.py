"""Changes of a PostgreSQL database -> views -> another database, Kafka, Delta and files, each exactly once.

    export SHOP='host=localhost dbname=shop user=ann'       # with wal_level = logical
    export REPORTS='host=localhost dbname=reports user=ann'
    export BROKERS=localhost:9092
    python examples/change_capture.py FOLDER                # Ctrl-C ends it; start it again, or kill -9 it

The shop has tables customers (id, country) and orders (id, customer, at, amount).
Another target is one line in TARGETS.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import millpond

SOURCE = """
CREATE SOURCE IF NOT EXISTS shop WITH (
    connector = 'postgres-cdc', connection = '${env:SHOP}', tables = 'customers, orders');
"""
VIEWS = """
CREATE MATERIALIZED VIEW IF NOT EXISTS by_country AS
    SELECT c.country, count(*) AS orders, sum(o.amount)::BIGINT AS amount
    FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.country;
CREATE MATERIALIZED VIEW IF NOT EXISTS by_hour AS
    SELECT window_start, count(*) AS orders, max(amount) AS largest
    FROM TUMBLE(orders, at, INTERVAL '1 hour') GROUP BY window_start;
"""
TARGETS = {
    "reports_by_country": "by_country WITH (connector = 'postgres', connection = '${env:REPORTS}',"
    " table = 'by_country', mode = 'upsert')",
    "reports_by_hour": "by_hour WITH (connector = 'postgres', connection = '${env:REPORTS}',"
    " table = 'by_hour', mode = 'upsert')",
    "topic": "by_country WITH (connector = 'kafka', brokers = '{brokers}', topic = 'by_country',"
    " mode = 'upsert')",
    "lake": "by_hour WITH (connector = 'delta', path = '{folder}/by_hour', mode = 'upsert', every = '200ms')",
    "changes": "by_country WITH (connector = 'files', path = '{folder}/changes', format = 'json',"
    " mode = 'changelog')",
}


def opened(folder: Path) -> millpond.Pond:
    pond = millpond.open(folder / "pond", engine="inline", take_over=True)
    pond.sql(SOURCE + VIEWS)
    for name, target in TARGETS.items():
        text = target.replace("{folder}", str(folder)).replace("{brokers}", os.environ["BROKERS"])
        pond.sql(f"CREATE SINK IF NOT EXISTS {name} FROM {text}")
    return pond


if __name__ == "__main__":
    if len(sys.argv) < 2 or not all(os.environ.get(name) for name in ("SHOP", "REPORTS", "BROKERS")):
        sys.exit(__doc__)
    with opened(Path(sys.argv[1]).absolute()) as pond:
        pond.on_epoch(lambda epoch: print("epoch", epoch.epoch, flush=True))
        if sys.argv[2:] == ["--once"]:
            pond.drain()  # everything that the database has now
        else:
            pond.run()
