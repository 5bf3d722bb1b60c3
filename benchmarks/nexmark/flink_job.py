"""Flink's side of Nexmark; runs under the Python that has PyFlink, so it imports nothing of ours.

One argument: a JSON file with `settings` (Flink configuration), `input` (a folder with a folder for each
table), `brokers` and `topics` (null, or where the events are instead), `queries` (text by name) and
`collect`, a folder or null. With null the changelog of the one query goes to the blackhole sink. With a
folder the changelog of each goes to files there (`q0/`), and is folded to the rows that stand at the end, as
JSON lines after one of names (`q0.jsonl`); what Flink says instead of an answer goes to `q0.refused`.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment
from pyflink.util.exceptions import TableException

TIME = "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
TABLES = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
    f"date_time TIMESTAMP(3), extra STRING, {TIME}",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    f"date_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING, {TIME}",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(3), "
    f"extra STRING, {TIME}",
    "bid_now": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "date_time TIMESTAMP(3), extra STRING, now_time AS PROCTIME()",
    # It has been as it is from the beginning of time: bids find it by theirs, and need not be kept.
    "side_input": "`key` BIGINT, `value` STRING, "
    "since AS CAST(TIMESTAMP '1970-01-01 00:00:00' AS TIMESTAMP(3)), "
    "WATERMARK FOR since AS since, PRIMARY KEY (`key`) NOT ENFORCED",
}


def fold(folder: Path) -> Counter[tuple[Any, ...]]:
    """The rows that stand at the end of a changelog; a retraction of one that does not stand is refused."""
    standing: Counter[tuple[Any, ...]] = Counter()
    for path in folder.glob("[!.]*"):  # no folder: no change
        for line in path.read_text().splitlines():
            change = json.loads(line, parse_int=str, parse_float=str)
            gone = change["op"] == "d"
            standing[tuple(change["before" if gone else "after"].values())] += -1 if gone else 1
    wrong = [row for row, n in standing.items() if n < 0]
    if wrong:
        raise ValueError(f"the changelog retracts {wrong[0]}, which does not stand")
    return standing


def environment(task: dict[str, Any]) -> TableEnvironment:
    configuration = Configuration()
    for name, value in task["settings"].items():
        configuration.set_string(name, value)
    made = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    for name, columns in TABLES.items():
        of = "bid" if name == "bid_now" else name
        made.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options(task, of)})")
    return made


def options(task: dict[str, Any], table: str) -> str:
    """Where a table is: a folder of files, or a topic up to the end that it has now."""
    found = {
        "connector": "filesystem",
        "format": "parquet",
        "path": f"file://{task['input']}/{table}",
        "parquet.utc-timezone": "true",
    }
    if task.get("brokers") and table != "side_input":
        found = {
            "connector": "kafka",
            "format": "json",
            "json.timestamp-format.standard": "SQL",
            "topic": f"{task['topics']}-{table}",
            "properties.bootstrap.servers": task["brokers"],
            "properties.group.id": "nexmark",
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
        }
    return ", ".join(f"'{name}' = '{value}'" for name, value in found.items())


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    table = environment(task)
    if not task["collect"]:
        (query,) = task["queries"].values()
        nowhere = TableDescriptor.for_connector("blackhole").build()
        table.sql_query(query).execute_insert(nowhere).wait()
        return
    for name, query in task["queries"].items():
        place = Path(task["collect"], name)
        files = (
            TableDescriptor.for_connector("filesystem")
            .format("debezium-json")
            .option("path", place.as_uri())
            .option("debezium-json.encode.decimal-as-plain-number", "true")
            .build()
        )
        try:
            rows = table.sql_query(query)
            rows.execute_insert(files).wait()
        except (Py4JJavaError, TableException) as error:  # told in the table of results
            place.with_suffix(".refused").write_text(str(error))
            continue
        with place.with_suffix(".jsonl").open("w") as out:
            for row in (rows.get_schema().get_field_names(), *fold(place).elements()):
                out.write(json.dumps(row) + "\n")


main()
