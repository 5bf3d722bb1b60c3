"""Flink's side of the latency benchmark; it runs under the Python of PyFlink and imports nothing of ours.

One argument: a JSON file with `settings` (Flink configuration), `input` (a folder with a folder for each
table), `tables` (columns by name), `monitor` (how often folders are listed) and `inserts`: texts that each
give one line of JSON a row. All run as one job, which prints the lines and never ends.
"""

import json
import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    configuration = Configuration()
    for name, value in task["settings"].items():
        configuration.set_string(name, value)
    table = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    for name, columns in task["tables"].items():
        table.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'format' = 'parquet', "
            f"'path' = 'file://{task['input']}/{name}', 'parquet.utc-timezone' = 'true', "
            f"'source.monitor-interval' = '{task['monitor']}')"
        )
    table.execute_sql("CREATE TABLE said (line STRING) WITH ('connector' = 'print')")
    table.execute_sql("CREATE TABLE nowhere (line STRING) WITH ('connector' = 'blackhole')")
    every = table.create_statement_set()
    for insert in task["inserts"]:
        every.add_insert_sql(insert)
    every.execute().wait()


main()
