"""Converts Arrow tables to data frames of pandas, Polars and Spark.

Law: the types of columns survive: decimals, timestamps with and without a time zone, lists, structs, and
integers with NULLs.  A library that is missing is reported with the command that installs it.
"""

from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidError, UnavailableError


def to_pandas(table: pa.Table, **options: Any) -> Any:
    """A pandas DataFrame; `options` are those of `pyarrow.Table.to_pandas`.

    Columns keep their Arrow types (`pandas.ArrowDtype`).  `types_mapper=None` gives NumPy types instead:
    an integer column with NULLs then becomes float.
    """
    pandas = _library("pandas")
    return table.to_pandas(**{"types_mapper": pandas.ArrowDtype, **options})


def to_polars(table: pa.Table) -> Any:
    """A Polars DataFrame."""
    return _library("polars").from_arrow(table)


def to_spark(table: pa.Table, spark: Any = None) -> Any:
    """A Spark DataFrame, sent to the session as Arrow; `spark` is the active session if none is given."""
    from pyspark.sql.pandas.types import from_arrow_schema

    session = spark_session(spark)
    try:  # without a schema Spark would read timestamps without a time zone as local times
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    except Exception as error:  # pyspark raises its own kinds, which differ between versions
        raise InvalidError(
            "Spark has no type for a column of this table",
            detail=f"columns are {', '.join(f'{f.name} {f.type}' for f in table.schema)}: {error}"[:500],
            hint="cast the column in SQL first",
        ) from error
    return session.createDataFrame(table, schema)


def spark_session(spark: Any = None) -> Any:
    """The session that was given, or the active one."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession() if spark is None else spark
    if session is None:
        raise InvalidError(
            "there is no active Spark session",
            hint="pass one: to_spark(spark), or make one with SparkSession.builder.getOrCreate()",
        )
    return session


def running_session() -> Any:
    """The Spark session of this process, for sinks; one is made if there is none."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidError("this sink needs Spark", detail=str(error), hint="pip install pyspark") from error
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(
            f"{name} is not installed", detail=str(error), hint=f"pip install {name}"
        ) from error
