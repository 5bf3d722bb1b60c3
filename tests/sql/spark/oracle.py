"""Spark itself as the oracle: one local session that answers queries in the notation of `values`."""

from __future__ import annotations

from typing import Any

from tests.sql.spark.values import encoded

Answer = dict[str, Any]  # {"columns", "types", "rows"}, or {"error": the condition that Spark names}


class Oracle:
    """A Spark session with its defaults (ANSI mode) and the time zone UTC."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        self.spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.log.level", "OFF")
            .getOrCreate()
        )

    def answer(self, sql: str) -> Answer:
        try:
            frame = self.spark.sql(sql)
            types = [kind for _, kind in frame.dtypes]
            rows = [[encoded(v) for v in row] for row in frame.collect()]
        except Exception as error:
            condition = getattr(error, "getCondition", lambda: None)() or type(error).__name__
            return {"error": condition, "message": str(error).split("\n")[0][:200]}
        return {"columns": frame.columns, "types": types, "rows": rows}
