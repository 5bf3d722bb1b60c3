"""docs/functions.md: every function, aggregate and operator that a user of PostgreSQL could call, and its status.

The statuses are measured by comparing recorded answers, and stored, so that the page can be checked quickly.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from pathlib import Path

from tests.functions.arguments import SKIPPED
from tests.functions.comparison import differences
from tests.functions.differences import NOTES, UNMEASURED
from tests.functions.inventory import Callable_
from tests.functions.ours import Millpond
from tests.functions.recorded import FOLDER, Answer, load

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
STATUSES = FOLDER / "statuses.tsv"
TITLES = {
    "text": "Text and bytea",
    "regular_expressions": "Regular expressions",
    "formatting": "Formatting",
    "date_time": "Dates and times",
    "json": "JSON",
    "arrays": "Arrays",
    "math": "Mathematics",
    "series_and_others": "Series and others",
    "aggregates": "Aggregates",
    "window_functions": "Window functions",
    "operators": "Operators",
}
HEAD = """# Functions of PostgreSQL

In the default dialect a function, an aggregate or an operator means what PostgreSQL says.
This page lists all that a user of PostgreSQL 15 could call over the types that Millpond has, by their arguments.
`python scripts/postgres_functions.py` generates it: it reads the catalog of a real server, asks both systems the same calls over edge values, and compares the answers.
`tests/functions` compares again with the recorded answers.

* *supported*: all answers are equal (numbers by value, floats to 14 digits).
* *different*: some answers differ; the last column says how.
* *missing*: refused with an error.

DuckDB's own functions whose names PostgreSQL does not have can be called as well.
[Your own functions](user-functions.md) come first.

"""


@dataclass(frozen=True)
class Status:
    """How one function compares."""

    family: str
    signature: str
    kind: str
    result: str
    status: str
    calls: int
    different: int
    note: str


def measured() -> list[Status]:
    """Compare everything; takes minutes."""
    millpond = Millpond()
    found = []
    for family, entries in load().items():
        if family == "left_out":
            continue
        for one, answers in entries:
            found.append(_status(family, one, answers, millpond))
    return found


def _status(family: str, one: Callable_, answers: list[Answer], millpond: Millpond) -> Status:
    note = NOTES.get(one.signature) or NOTES.get(f"{one.kind} {one.name}") or NOTES.get(one.name) or ""
    if not answers:
        known = one.signature in SKIPPED or one.name in SKIPPED
        assert known, one.signature
        status, note = UNMEASURED.get(one.signature) or UNMEASURED[one.name]
        return Status(family, one.signature, one.kind, one.result, status, 0, 0, note)
    wrong = differences(millpond, answers)
    works = sum(a.error is None for a in answers)
    failed = sum(told.startswith("refused: ") for _, told in wrong)
    status = "supported" if not wrong else "missing" if failed >= works else "different"
    return Status(
        family, one.signature, one.kind, one.result, status, len(answers), len(wrong), note if wrong else ""
    )


def write_statuses(statuses: list[Status]) -> None:
    lines = ["\t".join(map(str, vars(s).values())) for s in statuses]
    STATUSES.write_text("\n".join(lines) + "\n", "utf-8")


def read_statuses() -> list[Status]:
    found = []
    for line in STATUSES.read_text("utf-8").splitlines():
        family, signature, kind, result, status, calls, different, note = line.split("\t")
        found.append(Status(family, signature, kind, result, status, int(calls), int(different), note))
    return found


def rendered(statuses: list[Status]) -> str:
    counts = collections.Counter((s.family, s.status) for s in statuses)
    text = HEAD + "| family | supported | different | missing |\n|---|---:|---:|---:|\n"
    for family, title in TITLES.items():
        text += f"| {title} | {' | '.join(str(counts[family, k]) for k in ('supported', 'different', 'missing'))} |\n"
    total = collections.Counter(s.status for s in statuses)
    share = 100 * total["supported"] / len(statuses)
    calls = sum(s.calls for s in statuses)
    text += f"| **all** | {total['supported']} | {total['different']} | {total['missing']} |\n\n"
    text += f"{share:.1f} % of {len(statuses)} are supported; {calls:,} calls were compared.\n"
    for family, title in TITLES.items():
        text += f"\n## {title}\n\n| | returns | status | |\n|---|---|---|---|\n"
        for s in statuses:
            if s.family == family:
                shown = s.status if not s.different else f"{s.status} ({s.different} of {s.calls} calls)"
                text += f"| {_code(s.signature)} | {s.result.replace('|', chr(92) + '|')} | {shown} | {s.note} |\n"
    return text + _left_out()


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _left_out() -> str:
    reasons = collections.Counter(one.left_out for one, _ in load()["left_out"])
    text = "\n## Left out\n\nWhat the catalog has besides, and why it is not listed.\n\n| reason | number |\n|---|---:|\n"
    for why, number in sorted(reasons.items()):
        text += f"| {why} | {number} |\n"
    return text + (
        "\nFunctions over types that Millpond does not have are not counted: geometry, networks, ranges, bit strings,"
        " money, XML, full text search, and those of the catalog (`regclass`, `oid`, `name`).\n"
    )
