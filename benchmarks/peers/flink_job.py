"""The Flink job itself; runs under the Python that has PyFlink, so it imports nothing of ours.

One argument: a JSON file with `settings` (Flink configuration), `input` (folder of Parquet), and `collect`, a
path or null. With null the changelog goes to the blackhole sink. With a path it is folded to the final row of
each key and written there as JSON lines: a retraction must name the row that stands, else the fold refuses.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from pyflink.common import Configuration, Row, RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

QUERY = "SELECT auction, COUNT(*) AS n, SUM(price) AS total FROM bids GROUP BY auction"


def fold(changes: Iterable[Row]) -> dict[int, tuple[int, int]]:
    """The final row of every key of a changelog."""
    final: dict[int, tuple[int, int]] = {}
    for row in changes:
        auction, n, total = row
        kind = row.get_row_kind()
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            final[auction] = (n, total)
        elif final.get(auction) == (n, total):
            del final[auction]
        else:
            raise ValueError(f"changelog retracts {auction}, {n}, {total}; standing: {final.get(auction)}")
    return final


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    configuration = Configuration()
    for name, value in task["settings"].items():
        configuration.set_string(name, value)
    table = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    table.execute_sql(
        "CREATE TABLE bids (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP(3)) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{task['input']}', 'format' = 'parquet')"
    )
    if task["collect"]:
        with table.execute_sql(QUERY).collect() as changes:
            final = fold(changes)
        with Path(task["collect"]).open("w") as out:
            for auction, (n, total) in final.items():
                out.write(json.dumps([auction, n, total]) + "\n")
        return
    table.execute_sql(
        "CREATE TABLE nowhere (auction BIGINT, n BIGINT, total BIGINT) WITH ('connector' = 'blackhole')"
    )
    table.execute_sql(f"INSERT INTO nowhere {QUERY}").wait()


main()
