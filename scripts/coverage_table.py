"""Prints line coverage by package, from the JSON report of coverage.py on standard input."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import PurePath


def package(path: str) -> str:
    """The package that a file of src/millpond belongs to; files at the top are one package.

    >>> package("src/millpond/state/runs/packed.py"), package("src/millpond/delta.py")
    ('millpond.state', 'millpond')
    """
    parts = PurePath(path).parts
    inside = parts[parts.index("millpond") : -1]
    return ".".join(inside[:2])


def table(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> str:
    lines: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for path, found in report["files"].items():
        for name in (package(path), "total"):
            lines[name] += found["summary"]["num_statements"]
            covered[name] += found["summary"]["covered_lines"]
    names = [*sorted(lines.keys() - {"total"}), "total"]
    rows = [
        f"{n:<24} {lines[n]:>7} {lines[n] - covered[n]:>7} {covered[n] / (lines[n] or 1):>8.1%}"
        for n in names
    ]
    return "\n".join([f"{'package':<24} {'lines':>7} {'missed':>7} {'covered':>8}", *rows])


if __name__ == "__main__":
    print(table(json.load(sys.stdin)))
