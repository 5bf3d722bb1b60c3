"""The data source that Spark creates for `format("millpond")`.

Spark looks for `DefaultSource` in packages named `pyspark_*`, in every session that uses a data source in
Python.  So this module imports Millpond only when the format is used.

Spark creates the data source in a Python process of the driver, once for each DataFrame, and pickles it to
the processes that plan and run the query.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from millpond.spark_bridge.loaded_view import LoadedView
    from millpond.spark_bridge.options import SparkOptions
    from millpond.spark_bridge.query_reader import LoadedQuery

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """A pond: its views to read, its tables to write."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._loaded: LoadedView | None = None
        self._query: LoadedQuery | None = None

    @classmethod
    def name(cls) -> str:
        return "millpond"

    def schema(self) -> StructType:
        from millpond.spark_bridge.change_reader import feed_schema

        query = self._asked()
        return query.spark_schema if query is not None else feed_schema(self._view(), self._options())

    def reader(self, schema: StructType) -> Any:
        from millpond.spark_bridge.batch_reader import view_reader
        from millpond.spark_bridge.query_reader import QueryReader

        query = self._asked()
        if query is not None:
            return QueryReader(self._options(), query, schema)
        return view_reader(self._options(), self._view(), schema)

    def streamReader(self, schema: StructType) -> Any:
        from millpond.spark_bridge.change_reader import ViewChangeReader

        return ViewChangeReader(self._options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from millpond.spark_bridge.table_writer import TableBatchWriter

        return TableBatchWriter(self._options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from millpond.spark_bridge.table_writer import TableStreamWriter

        return TableStreamWriter(self._options(), schema, overwrite)

    def _options(self) -> SparkOptions:
        from millpond.spark_bridge.options import SparkOptions

        return SparkOptions.of(self.options)

    def _asked(self) -> LoadedQuery | None:
        """The query of the option `query` at the epoch of this DataFrame, chosen once."""
        text = self._options().get("query")
        if text is not None and self._query is None:
            from millpond.spark_bridge.query_reader import load_query

            self._query = load_query(self._options(), text)
        return self._query

    def _view(self) -> LoadedView:
        """The view at the epoch of this DataFrame, chosen once."""
        from millpond.spark_bridge.loaded_view import load_view

        if self._loaded is None:
            self._loaded = load_view(self._options())
        return self._loaded
