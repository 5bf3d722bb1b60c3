"""Flink's side; runs under the Python that has PyFlink, so it imports nothing of ours.

One argument: a JSON file with `settings` (Flink configuration), `brokers`, the topics `read` and `write`, and
`columns`.
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
    columns = ", ".join(f"{name} BIGINT" for name in task["columns"])
    both = f"'connector' = 'kafka', 'format' = 'json', 'properties.bootstrap.servers' = '{task['brokers']}'"
    table.execute_sql(
        f"CREATE TABLE bid ({columns}) WITH ({both}, 'topic' = '{task['read']}', "
        "'properties.group.id' = 'kafka-sink', 'scan.startup.mode' = 'earliest-offset', "
        "'scan.bounded.mode' = 'latest-offset')"
    )
    table.execute_sql(
        f"CREATE TABLE written ({columns}) WITH ({both}, 'topic' = '{task['write']}', "
        f"'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{task['write']}', "
        "'properties.transaction.timeout.ms' = '600000')"
    )
    table.execute_sql("INSERT INTO written SELECT * FROM bid").wait()


main()
