"""What a real PostgreSQL answered to every call, in a file per family: tests compare without a server."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.functions.calls import calls_of
from tests.functions.inventory import Callable_, read

FOLDER = Path(__file__).parent / "recorded"

FAMILIES = {
    "aggregates": r"$^",
    "regular_expressions": r"^regexp_",
    "formatting": r"^(to_char|to_date|to_timestamp|to_number|format)$",
    "json": r"json",
    "arrays": r"^(array_|cardinality|trim_array|string_to_array|string_to_table|unnest|generate_subscripts)",
    "date_time": r"^(age|date_|extract|isfinite|justify|make_|now|.*_timestamp|timeofday|timezone|overlaps)",
    "series_and_others": r"^(generate_series|num_n|gen_random|random|pi$)",
    "math": r"^(abs|a?(sin|cos|tan|cot)[dh]?$|atan2d?|cbrt|ceil|ceiling|degrees|div|exp|factorial|floor|gcd|lcm|ln|log|log10|min_scale|mod|pow|power|radians|round|scale|sign|sqrt|trim_scale|trunc|width_bucket|bit_count)",
}


def family(one: Callable_) -> str:
    if one.kind in ("aggregate", "window"):
        return one.kind + ("s" if one.kind == "aggregate" else "_functions")
    if one.kind == "operator":
        return "operators"
    return next((name for name, pattern in FAMILIES.items() if re.search(pattern, one.name)), "text")


@dataclass(frozen=True)
class Answer:
    """What PostgreSQL says to a query: rows as texts with the types of columns, or an error."""

    query: str
    types: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    error: str | None = None


def ask(con: Any, query: str) -> Answer:
    import psycopg

    names = con.adapters.types
    try:
        found = con.execute(query).pgresult
    except psycopg.Error as error:
        return Answer(query, error=str(error).split("\n")[0])
    kinds = []
    for n in range(found.nfields):
        kind = names.get(found.ftype(n))
        kinds.append(
            (kind.name + ("[]" if kind.array_oid == found.ftype(n) else "")) if kind else str(found.ftype(n))
        )
    rows = []
    for r in range(found.ntuples):
        row = [found.get_value(r, c) for c in range(found.nfields)]
        rows.append(tuple(None if v is None else v.decode() for v in row))
    return Answer(query, tuple(kinds), tuple(rows))


def record(con: Any) -> None:
    """Ask everything and write the files."""
    FOLDER.mkdir(exist_ok=True)
    files: dict[str, list[str]] = {}
    for one in read(con):
        answers = [] if one.left_out else [ask(con, query) for query in calls_of(one)]
        entry = {**asdict(one), "answers": [[a.query, a.types, a.rows, a.error] for a in answers]}
        files.setdefault("left_out" if one.left_out else family(one), []).append(
            json.dumps(entry, ensure_ascii=False)
        )
    for name, lines in files.items():
        (FOLDER / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def load() -> dict[str, list[tuple[Callable_, list[Answer]]]]:
    """The recorded answers, by family."""
    found = {}
    for path in sorted(FOLDER.glob("*.jsonl")):
        entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        found[path.stem] = [_entry(e) for e in entries]
    return found


def _entry(entry: dict[str, Any]) -> tuple[Callable_, list[Answer]]:
    answers = [Answer(q, tuple(t), tuple(map(tuple, r)), e) for q, t, r, e in entry.pop("answers")]
    entry["arguments"] = tuple(entry["arguments"])
    return Callable_(**entry), answers
