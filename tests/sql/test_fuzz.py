"""Random queries as views over random changes, compared at every epoch with DuckDB's batch (law 1).

MILLPOND_FUZZ_PONDS says how many ponds of random tables are played, each with a dozen queries; what fails is
printed as a small script.  A case that DuckDB itself cannot answer is left out and counted.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from tests.sql import fuzz
from tests.sql.fuzz import ARROW, Change, Tables
from tests.sql.world import World

PONDS = int(os.environ.get("MILLPOND_FUZZ_PONDS", "4"))
FIRST = int(os.environ.get("MILLPOND_FUZZ_FIRST", "0"))
AT_ONCE = 12
EPOCHS = 5


@pytest.mark.parametrize("seed", range(FIRST, FIRST + PONDS))
def test_random_queries(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    made = fuzz.tables(rng)
    live: dict[str, dict[int, dict[str, object]]] = {}
    epochs = [fuzz.changes(made, rng, live) for _ in range(EPOCHS)]
    queries = [fuzz.Queries(made, rng).query() for _ in range(AT_ONCE)]
    wrong = play(tmp_path / "pond", made, queries, epochs, parallelism=rng.choice([1, 2, 3]))
    if wrong:
        query = next(iter(wrong))
        raise AssertionError(f"{wrong[query]}\n\n{script(made, query, shrunk(made, query, epochs))}")


def play(
    path: Path, made: Tables, queries: Sequence[str], epochs: Sequence[Sequence[Change]], parallelism: int = 2
) -> dict[str, str]:
    """The queries that went wrong, and how."""
    world = World(path, made, parallelism=parallelism)
    wrong: dict[str, str] = {}
    try:
        for number, query in enumerate(queries):
            try:
                world.con.sql(query)
            except duckdb.Error:
                continue
            try:
                world.view(f"v{number}", query)
            except InvalidError as error:
                if "not supported" not in error.message:
                    wrong[query] = f"refused: {error}"
        for number, changes in enumerate(epochs):
            for change in changes:
                columns = made[change.table][0]
                schema = pa.schema([(c, ARROW[k]) for c, k in columns.items()])
                rows = pa.Table.from_pylist(list(change.rows), schema=schema)
                (world.take if change.taken else world.put)(change.table, rows)
            world.pond.drain()
            for name, query in list(world.queries.items()):
                try:
                    wanted = world.batch(query)
                except duckdb.Error:  # an overflow or the like: the view has error rows
                    del world.queries[name]
                    continue
                given = world.rows(name)
                if given != wanted:
                    wrong[query] = (
                        f"epoch {number}: missing {list((wanted - given).items())[:3]}, too many "
                        f"{list((given - wanted).items())[:3]}, errors {world.pond.errors().to_pylist()[:2]}"
                    )
                    del world.queries[name]
    finally:
        world.close()
    return wrong


def shrunk(made: Tables, query: str, epochs: Sequence[Sequence[Change]]) -> list[list[Change]]:
    """Fewer changes that still make it go wrong."""

    def fails(tried: Sequence[Sequence[Change]]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            return bool(play(Path(folder) / "pond", made, [query], tried))

    kept = [list(changes) for changes in epochs]
    if not fails(kept):
        return kept
    for number in reversed(range(len(kept))):
        for place in reversed(range(len(kept[number]))):
            fewer = [list(c) for c in kept]
            del fewer[number][place]
            if fails(fewer):
                kept = fewer
    return [changes for changes in kept if changes]


def script(made: Tables, query: str, epochs: Sequence[Sequence[Change]]) -> str:
    lines = [
        f"CREATE TABLE {n} ({', '.join(f'{c} {k}' for c, k in cols.items())});"
        for n, (cols, _) in made.items()
    ]
    lines.append(f"CREATE MATERIALIZED VIEW v AS {query};")
    for changes in epochs:
        for change in changes:
            word = "-- taken" if change.taken else "-- put"
            lines += [f"{word} {change.table} {row}" for row in change.rows]
        lines.append("FLUSH;")
    return "\n".join(lines)
