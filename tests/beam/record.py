"""Writes `recorded.json.gz` anew: transcripts with the answers of Beam's driver, for tests without Beam.

    python -m tests.beam.record

Law: the file depends on the seeds below, the generator and the version of Beam, on nothing else.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.beam import environment
from tests.beam.transcripts import transcript

RECORDED = Path(__file__).with_name("recorded.json.gz")
SEEDS = range(13)
SEEDS_WITH_DELAYS = range(2)
SIZE: dict[str, Any] = {"cases": 10, "keys": 8, "length": 8}


def recorded() -> list[dict[str, Any]]:
    """Transcripts, each with `answers`: one of each case."""
    return list(map(json.loads, gzip.decompress(RECORDED.read_bytes()).splitlines()))


def main() -> None:
    found = [transcript(seed, **SIZE) for seed in SEEDS]
    found += [transcript(seed, **SIZE, delays=True) for seed in SEEDS_WITH_DELAYS]
    with environment.Oracle(environment.interpreter()) as beam:
        answered = [{**one, "answers": beam.answers(one["cases"], one["steps"])} for one in found]
    lines = [json.dumps(one, separators=(",", ":")) for one in answered]
    RECORDED.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    print(
        f"{RECORDED.name}: {sum(len(one['cases']) for one in found)} cases, {RECORDED.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
