"""What the functions and operators of PostgreSQL take, for `millpond.sql.diagnosis`: from the recorded inventory.

`python -m tests.functions.signatures` writes the file anew; a test fails where it is stale.
"""

from __future__ import annotations

import json
from pathlib import Path

from millpond.sql.diagnosis import signatures

RECORDED = Path(__file__).parent / "recorded"
FILE = Path(signatures.__file__).with_name("signatures.tsv")
# Those with parameters that can be left out, ordered-set aggregates, and what is a table's here.
LEFT_OUT = frozenset(
    [
        *("make_interval", "parse_ident", "normalize", "is_normalized", "mode", "percentile_cont"),
        *("percentile_disc", "rank", "dense_rank", "percent_rank", "cume_dist", "overlaps", "timezone"),
        *("json_populate_record", "json_populate_recordset", "jsonb_populate_record"),
        *("jsonb_populate_recordset", "json_to_record", "json_to_recordset", "jsonb_to_record"),
        *("jsonb_to_recordset", "row_to_json", "count", "extract", "date_part"),
    ]
)


def text() -> str:
    """A line for each: its name, and what its parameters can be."""
    found: dict[str, dict[str, None]] = {}
    for file in sorted(RECORDED.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            one = json.loads(line)
            if one["left_out"] or one["name"] in LEFT_OUT or "ORDER BY" in one["written"]:
                continue
            taken = [signatures.family(kind) for kind in one["arguments"]]
            if "VARIADIC" in one["written"]:
                taken[-1] += "..."
            found.setdefault(one["name"], {})[",".join(taken)] = None
    return "".join(f"{name}\t{';'.join(taken)}\n" for name, taken in sorted(found.items()))


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
