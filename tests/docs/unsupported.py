"""What is not supported, for docs/sql.md: every refusal has an example here, and is told in its own words.

`python tests/docs/unsupported.py` (make docs) writes the section anew; a test fails where it is stale, and where
a refusal of the code has no example.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import millpond
from millpond.errors import MillpondError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sql.md"
TITLE = "## What is not supported\n"
SETUP = """
    CREATE TABLE orders (id int PRIMARY KEY, customer text, amount decimal(10,2), at timestamp);
    CREATE TABLE readings (sensor int, at timestamp, WATERMARK FOR at AS at) APPEND ONLY;
    CREATE TABLE log (at timestamp, line text) APPEND ONLY;
    CREATE TABLE events (id int PRIMARY KEY, tags text[]) APPEND ONLY;
    CREATE TABLE notes (line text, tags text[]);
    CREATE MATERIALIZED VIEW totals AS SELECT customer, count(*) AS n FROM orders GROUP BY customer;
    CREATE SOURCE bid WITH (connector = 'nexmark', events = 10)
"""
STATEMENTS = [
    "ALTER TABLE orders ALTER COLUMN customer TYPE int",
    "ALTER TABLE orders ADD COLUMN x int GENERATED ALWAYS AS (id + 1)",
    "ALTER TABLE orders ADD COLUMN x double DEFAULT random()",
    "ALTER TABLE orders ADD PRIMARY KEY (amount)",
    "CREATE TABLE x (a int UNIQUE) APPEND ONLY",
    "CREATE TABLE x (at timestamptz CHECK (at < now()))",
    "CREATE TABLE x (a int, FOREIGN KEY (a) REFERENCES orders (id))",
    "CREATE TABLE x (at timestamp, WATERMARK FOR at AS at)",
    "CREATE TABLE x (_a int) APPEND ONLY",
    "CREATE OR REPLACE TABLE orders (id int)",
    "CREATE FUNCTION f(a int) RETURNS int LANGUAGE plpgsql AS 'select 1'",
    "CREATE SCHEMA pg_x",
    "CREATE TABLE sales.orders (id int)",
    "INSERT OR REPLACE INTO orders VALUES (1, 'ann', 2.50, NULL)",
    "INSERT OR IGNORE INTO orders VALUES (1, 'ann', 2.50, NULL)",
    "INSERT INTO log SELECT at, customer FROM orders AS OF EPOCH 1",
    "UPDATE totals SET n = 1",
    "UPDATE readings SET sensor = 1",
    "UPDATE orders SET amount = random()",
    "UPDATE orders SET at = localtime",
    "INSERT INTO log VALUES (now(), 'x') ON CONFLICT DO NOTHING",
    "INSERT INTO events VALUES (1, []) ON CONFLICT (id) DO UPDATE SET tags = ['x']",
    "WITH a AS (DELETE FROM orders RETURNING id) SELECT * FROM a",
    "SELECT * FROM bid",
    "SELECT * FROM read_csv('x.csv')",
    "CREATE TABLE x (a int) PARTITION BY RANGE (a)",
    "CREATE TABLE x (a int) ENGINE = MergeTree",
    "CREATE TABLE x (a int) WITH (fillfactor = 70)",
    "CREATE TABLE x (a int) TABLESPACE fast",
    "SELECT 1 AS a INTO TEMPORARY x",
    "TRUNCATE log",
    "COPY orders FROM 'x.csv'",
    "REFRESH MATERIALIZED VIEW totals",
    "VACUUM",
    "PREPARE p AS CREATE TABLE x (a int)",
    "EXPLAIN (FORMAT YAML) SELECT * FROM orders",
    "CALL f()",
    "EXPLAIN ANALYZE SELECT * FROM orders",
    "SET TimeZone = 'Mars/Base'",
    "SET TimeZone = 'Asia/Tokyo'; CREATE MATERIALIZED VIEW v AS SELECT strftime(at::timestamptz, '%Y') FROM orders",
    "SET x = 1",
]
QUERIES = [  # of materialized views
    "SELECT id, random() FROM orders",
    "SELECT reservoir_quantile(amount, 0.5) FROM orders",
    "SELECT id FROM orders ORDER BY id LIMIT 40%",
    "SELECT o.id FROM orders o POSITIONAL JOIN totals t",
    "SELECT [at - timestamp '2024-01-01'] AS i, count(*) FROM orders GROUP BY 1",
    "SELECT * FROM glob('*')",
    "SELECT * FROM duckdb_settings()",
    "SELECT id, now() FROM orders",
    "SELECT id FROM orders WHERE at > now() OR at < now() - INTERVAL '1 day'",
    "SELECT id FROM orders WHERE at <> now()",
    "SELECT id FROM orders WHERE at > now() - INTERVAL '1 month'",
    "SELECT count(*) FILTER (WHERE proctime() > at) FROM log",
    "SELECT id, proctime() FROM orders",
    "SELECT * FROM orders FOR SYSTEM_TIME AS OF PROCTIME()",
    "SELECT n.line FROM notes n JOIN totals FOR SYSTEM_TIME AS OF PROCTIME() AS t ON t.customer = n.line",
    "SELECT * FROM TUMBLE(orders, id, INTERVAL '1 day')",
    "SELECT * FROM TUMBLE(orders, at, amount * INTERVAL '1 day')",
    "SELECT * FROM TUMBLE(orders, at, INTERVAL '1 month')",
    "SELECT * FROM TUMBLE(orders, at, 60)",
    "SELECT * FROM TUMBLE(orders, at, INTERVAL '0 days')",
    "SELECT * FROM CUMULATE(orders, at, INTERVAL '7 hours', INTERVAL '1 day')",
    "SELECT * FROM HOP(orders, at, INTERVAL '1 second', INTERVAL '1 day')",
    "SELECT * FROM CALENDAR(orders, at, 'fortnight')",
    "SELECT * FROM CALENDAR(orders, at, customer)",
    "SELECT * FROM CALENDAR(orders, at, 'day', 'Mars/Base')",
    "WITH MUTUALLY RECURSIVE r(a int) AS (SELECT 1 UNION SELECT a + 1 FROM r WHERE a < 9) SELECT * FROM r",
    "SELECT id, count(*) OVER (ORDER BY at SESSION WITH GAP '10 minutes') FROM orders",
    "WITH c AS CHANGELOG FROM orders SELECT * FROM c",
    "SELECT max(union_value(x := 1)) AS u FROM orders",
    "SELECT customer, count(*) FROM orders GROUP BY customer EMIT ON WINDOW CLOSE",
    "SELECT window_end, count(*) FROM TUMBLE(orders, at, INTERVAL '1 day') GROUP BY 1 EMIT ON WINDOW CLOSE",
    "SELECT ntile(2) OVER (ORDER BY at) FROM readings EMIT ON WINDOW CLOSE",
    "SELECT sum(sensor) OVER (ORDER BY sensor) FROM readings EMIT ON WINDOW CLOSE",
    "SELECT count(*) FROM TUMBLE((SELECT * FROM TUMBLE(readings, at, INTERVAL '1 minute')), at, INTERVAL '1 day')",
    "SELECT window_end, count(*) FROM TUMBLE(readings, at, INTERVAL '1 day') GROUP BY 1 EMIT CHANGES",
    "SELECT sensor FROM TUMBLE(readings, at, INTERVAL '1 day') EMIT EARLY EVERY 10 ROWS",
    "SELECT count(*) FROM TUMBLE(readings, at, INTERVAL '1 day') GROUP BY window_end EMIT EARLY EVERY 10 ROWS",
    "SELECT DISTINCT sensor, window_end FROM TUMBLE(readings, at, INTERVAL '1 day') EMIT EARLY EVERY 10 ROWS",
    "SELECT count(*) FROM TUMBLE(readings, at, INTERVAL '1 day')"
    " GROUP BY window_start, GROUPING SETS ((window_end, sensor), (window_end)) EMIT EARLY EVERY 10 ROWS",
    "SELECT count(*) FROM SESSION(readings, at, INTERVAL '1 day', sensor)"
    " GROUP BY window_start, window_end EMIT EARLY EVERY 10 ROWS",
    "WITH RECURSIVE r(a) AS (SELECT at FROM orders UNION ALL SELECT a FROM r WHERE a > now()) SELECT * FROM r",
]
UNREACHED = (  # refusals that no text of today reaches: they guard what the binder may come to give
    "a join of kind .* is not supported",
    "this ASOF join is not supported in a materialized view",
    "this correlated subquery is not supported",
    "USING KEY is not supported in a materialized view",
    r"now\(\) cannot be compared as .* in a materialized view",
)


def examples() -> list[str]:
    return [*STATEMENTS, *(f"CREATE MATERIALIZED VIEW v AS {query}" for query in QUERIES)]


def refusals() -> dict[str, MillpondError]:
    """What is said to each example."""
    found: dict[str, MillpondError] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        millpond.open(Path(folder) / "pond", engine="inline") as pond,
    ):
        pond.sql(SETUP)
        for sql in examples():
            try:
                pond.sql(sql)
            except MillpondError as error:
                found[sql] = error
            else:
                raise AssertionError(f"it is supported: {sql}")
            pond.sql("RESET ALL")
    return found


def section() -> str:
    """The table of docs/sql.md."""
    lines = ["| statement | what is said | instead |", "|---|---|---|"]
    for sql, error in refusals().items():
        if sql.startswith("CREATE MATERIALIZED VIEW v AS "):
            sql = f"… AS {sql.removeprefix('CREATE MATERIALIZED VIEW v AS ')}"
        hint = error.hint or ""
        lines.append(f"| `{_cell(sql)}` | {_cell(error.message)} | {_cell(hint)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def patterns() -> Iterator[tuple[str, str]]:
    """Every message with which the lowering of queries refuses, as a pattern, and where it stands."""
    for path in sorted((ROOT / "src" / "millpond" / "sql").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            if node.func.id == "NotSupported" and node.args and path.name != "refusal.py":
                yield _pattern(node.args[0]), where
            elif node.func.id == "refuse" and len(node.args) > 1:
                name = ".*"
                if isinstance(node.args[0], ast.Dict):
                    name = next(
                        (
                            _pattern(v)
                            for v in node.args[0].values
                            if isinstance(v, ast.Constant | ast.JoinedStr)
                        ),
                        ".*",
                    )
                yield f"{name} {_pattern(node.args[1])}", where


def _pattern(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return re.escape(str(node.value)).replace("\\ ", " ")
    if isinstance(node, ast.JoinedStr):
        return "".join(_pattern(v) if isinstance(v, ast.Constant) else ".*" for v in node.values)
    return ".*"


def main() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(TITLE)
    intro, _, table = rest.partition("\n| ")
    after = table.split("\n\n", 1)[1] if "\n\n" in table else ""
    PAGE.write_text(f"{before}{TITLE}{intro}\n{section()}" + (f"\n{after}" if after else ""))


if __name__ == "__main__":
    main()
