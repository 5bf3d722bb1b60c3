"""Writes docs/spark-functions.md: each function of Spark's registry, and what Millpond makes of its examples.

`--record` asks Spark itself for the registry and the answers first (one local session, some minutes);
without it the answers in tests/sql/spark/registry.json are compared again.
`tests/sql/spark/test_registry.py` checks that the page is current.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import millpond  # noqa: E402
from millpond.pond import Pond  # noqa: E402
from millpond.sql.dialects.spark.functions import supported  # noqa: E402
from tests.sql.spark.comparison import CHANGING, answered, verdict  # noqa: E402
from tests.sql.spark.oracle import Answer, Oracle  # noqa: E402

RECORDED = ROOT / "tests/sql/spark/registry.json"
PAGE = ROOT / "docs/spark-functions.md"
NAMES = ROOT / "src/millpond/sql/dialects/spark/registry.txt"
Registry = dict[str, list[tuple[str, Answer]]]  # the examples of each function, with Spark's answers

HEAD = """# Spark's functions

`python scripts/spark_functions.py` writes this page from the registry of Spark {version}.
It runs the examples of `DESCRIBE FUNCTION EXTENDED` with `dialect="spark"` and compares the answers.

* **supported**: every example has Spark's answer.
* **partly**: no example has another answer, but the one shown is refused with an error.
* **different**: the example shown has another answer.
* **missing**: the name is refused.

{counts}.

| function | state | example |
|---|---|---|
"""


def recorded() -> Registry:
    """The registry with Spark's answers, as it was recorded."""
    return json.loads(RECORDED.read_text("utf-8"))["functions"]


def record() -> None:
    """Ask Spark for its functions, their examples and the answers."""
    oracle = Oracle()
    found: Registry = {}
    for (name,) in oracle.spark.sql("SHOW FUNCTIONS").collect():
        told = oracle.spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect()
        text = "\n".join(row[0] or "" for row in told).partition("Examples:")[2]
        queries = [q.strip() for q in re.findall(r"^\s*> (.*?);\s*$", text, re.MULTILINE | re.DOTALL)]
        wanted = [q for q in queries if not q.startswith("SET") and not CHANGING.search(q)]
        answers = [(q, shortened(oracle.answer(q))) for q in wanted]
        found[name] = [
            (q, a) for q, a in answers if a.get("error") != "NOT_IMPLEMENTED"
        ]  # by pyspark's collect()
    RECORDED.write_text(written(oracle.spark.version, found), "utf-8")
    NAMES.write_text("\n".join(sorted(found)) + "\n", "utf-8")


def shortened(answer: Answer) -> Answer:
    return {k: v for k, v in answer.items() if k in ("columns", "rows", "error")}


def written(version: str, found: Registry) -> str:
    lines = [f"{json.dumps(n)}: {json.dumps(e, ensure_ascii=False)}" for n, e in sorted(found.items())]
    return f'{{"version": {json.dumps(version)}, "functions": {{\n' + ",\n".join(lines) + "\n}}\n"


def state(pond: Pond, name: str, examples: list[tuple[str, Answer]]) -> tuple[str, str]:
    """The state of a function, and the example that shows it."""
    if not supported(name):
        return "missing", ""
    shown = {}
    for sql, theirs in examples:
        shown.setdefault(verdict(theirs, answered(pond, sql)), sql)
    for found, said in (("different", "different"), ("lenient", "different"), ("refused", "partly")):
        if found in shown:
            return said, shown[found]
    return "supported", ""


def page(pond: Pond) -> str:
    """The text of the page."""
    registry = recorded()
    states = {name: state(pond, name, examples) for name, examples in sorted(registry.items())}
    counts = {
        s: sum(found == s for found, _ in states.values())
        for s in ("supported", "partly", "different", "missing")
    }
    listed = ", ".join(f"{count} {word}" for word, count in counts.items())
    version = json.loads(RECORDED.read_text("utf-8"))["version"]
    rows = [row(name, *states[name]) for name in states]
    return HEAD.format(version=version, counts=f"{len(states)} functions: {listed}") + "\n".join(rows) + "\n"


def row(name: str, found: str, example: str) -> str:
    """One row of the page."""
    shown = f"`{' '.join(example.split())}`" if example else ""
    return f"| `{name}` | {found} | {shown} |".replace("||", "\\|\\|").replace("`|`", "`\\|`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="ask Spark first")
    if parser.parse_args().record:
        record()
    with (
        tempfile.TemporaryDirectory() as folder,
        millpond.open(Path(folder) / "pond", engine="inline") as pond,
    ):
        PAGE.write_text(page(pond), "utf-8")


if __name__ == "__main__":
    main()
