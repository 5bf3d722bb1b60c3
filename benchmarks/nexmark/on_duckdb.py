"""DuckDB, one shot over the whole input: not incremental, nothing durable; the limit, and the oracle.

Law: a run computes every row of the answer and hands none of them over. The best of three runs counts: the
first also pays for opening the files.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from benchmarks.measure import confine
from benchmarks.nexmark import command, compare, events, queries
from benchmarks.nexmark.queries import Query
from benchmarks.outcome import Outcome
from benchmarks.peers.duckdb_batch import best


def discarded(connection: duckdb.DuckDBPyConnection, query: Query) -> None:
    """All rows are made, a chunk at a time, and let go."""
    for _ in connection.sql(queries.text("duckdb", query.name)).to_arrow_reader(65_536):
        pass


def measured(query: Query, folder: Path, cores: int) -> Outcome:
    def work(connection: duckdb.DuckDBPyConnection) -> None:
        discarded(connection, query)

    rows = events.count(folder)
    return best(lambda: compare.connect(folder, cores), work, rows, cores, query.name)


def main() -> None:
    arguments = command.parser(__doc__ or "").parse_args()
    confine(arguments.cores)
    for query, place in command.asked(arguments):
        if arguments.verify:
            command.hand_over(compare.expected(compare.connect(arguments.input), query), place)
        else:
            measured(query, arguments.input, arguments.cores).write(place)


if __name__ == "__main__":
    main()
