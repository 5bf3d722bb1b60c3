"""The command line every contender shares, and how it hands its answers back.

Law: with `--out FILE` a process times one query and the file is its outcome. With `--verify FOLDER` it
answers every query asked for and leaves one file for each: `q0.parquet`, the rows that stand at the end, or
`q0.refused`, the first lines of what the system said instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark import queries
from benchmarks.nexmark.queries import Query
from benchmarks.nexmark.topics import Topics

MESSAGE_CHARS = 600


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--input", type=Path, required=True, help="folder with a folder for each table")
    made.add_argument("--brokers", help="the events are in topics there, and the folder only tells how many")
    made.add_argument("--topics", help="what the names of the topics begin with")
    made.add_argument("--cores", type=int, default=2, help="processors the system may use")
    made.add_argument("--queries", required=True, help="comma-separated; one if it is to be timed")
    wanted = made.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--out", type=Path, help="time the query and write its outcome here as JSON")
    wanted.add_argument("--verify", type=Path, help="write the answers into this folder instead")
    return made


def topics(arguments: argparse.Namespace) -> Topics | None:
    """Where the events are, if not in files."""
    return None if arguments.brokers is None else Topics(arguments.brokers, arguments.topics)


def asked(arguments: argparse.Namespace) -> Iterator[tuple[Query, Path]]:
    """The queries, each with where its result goes."""
    chosen = queries.choose(arguments.queries)
    if arguments.out is not None and len(chosen) != 1:
        raise ValueError(f"one query is timed by one process, not {len(chosen)}")
    for query in chosen:
        yield query, arguments.out or arguments.verify / f"{query.name}.parquet"


def hand_over(answer: pa.Table | str, place: Path) -> None:
    """The rows, or what the system said instead."""
    if isinstance(answer, str):
        place.with_suffix(".refused").write_text(answer.strip()[:MESSAGE_CHARS] + "\n")
    else:
        pq.write_table(answer, place)


def answer(folder: Path, query: Query) -> pa.Table | str:
    """What a contender left: its rows, or its message."""
    refused = folder / f"{query.name}.refused"
    return (
        refused.read_text().strip() if refused.exists() else pq.read_table(folder / f"{query.name}.parquet")
    )
