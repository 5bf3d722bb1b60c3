"""A view to be read: as Arrow, or as a data frame of pandas, Polars or Spark.

Law: each call reads one epoch (law 2): the newest when it is called, or the one that was chosen with `at`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.serve.reader import Reader
from millpond.sinks import dataframes
from millpond.table_preview import html_facts

SPARK_ROWS_MIN = 500_000  # a view with more rows is read by Spark's workers


class ViewReader:
    """A view by its name; created by `pond.view(name)` and `moment.view(name)`.

    The examples of its methods begin with these lines:

    >>> import millpond
    >>> pond = millpond.open("memory://", engine="inline")
    >>> orders = pond.table("orders", {"who": str, "n": int})
    >>> totals = orders.key_by("who").aggregate(total="sum(n)").view("totals")
    >>> _ = pond.insert("orders", {"who": "ann", "n": 5})
    >>> _ = pond.drain()
    >>> pond.view("totals")
    ViewReader('totals', newest epoch: who string, total int64)
    """

    def __init__(self, reader: Reader, name: str, epoch: int | str | None = None) -> None:
        self._reader = reader
        self.name = name
        self.epoch = epoch  # a number, a savepoint, or None for the newest
        self.schema: pa.Schema = reader.view_schema(name, epoch=epoch)

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name} {f.type}" for f in self.schema)
        return f"ViewReader({self.name!r}, {self._which}: {columns})"

    def _repr_html_(self) -> str:
        columns = [(f.name, str(f.type)) for f in self.schema]
        return html_facts(f"view {self.name}, {self._which}", columns)

    @property
    def _which(self) -> str:
        return "newest epoch" if self.epoch is None else f"epoch {self.epoch!r}"

    @property
    def columns(self) -> list[str]:
        """The names of the view's columns.

        >>> pond.view("totals").columns
        ['who', 'total']
        """
        return list(self.schema.names)

    def at(self, epoch: int | str | None) -> ViewReader:
        """The same view at an epoch, a savepoint, or (None) the newest epoch.

        >>> pond.view("totals").at(1).arrow().to_pylist()
        [{'who': 'ann', 'total': 5}]
        """
        return ViewReader(self._reader, self.name, epoch)

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table.

        >>> pond.view("totals").arrow().num_rows
        1
        """
        return self._reader.read(self.name, epoch=self.epoch)

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a pandas DataFrame; `options` are those of `pyarrow.Table.to_pandas`.

        Columns keep their Arrow types; `types_mapper=None` gives NumPy types instead.

        >>> int(pond.view("totals").to_pandas().total.sum())
        5
        """
        return dataframes.to_pandas(self.arrow(), **options)

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame.

        >>> pond.view("totals").to_polars().rows()
        [('ann', 5)]
        """
        return dataframes.to_polars(self.arrow())

    def to_spark(self, spark: Any = None, *, epoch: int | str | None = None) -> Any:
        """All rows as a Spark DataFrame, of the active session or of `spark`; they are sent as Arrow.

        A large view is read by Spark's workers when the DataFrame is used, at the epoch of this call; that
        epoch is pinned for `reader_ms`.  The rows of a small view are sent to the session now.

        >>> pond.view("totals").to_spark(spark, epoch=1).count()
        1
        """
        chosen = self if epoch is None else self.at(epoch)
        return chosen._loaded(spark) if chosen._is_large() else dataframes.to_spark(chosen.arrow(), spark)

    def _is_large(self) -> bool:
        """Is reading by Spark's workers worthwhile?  They cannot read a pond in this process's memory."""
        if self._reader.store.uri.startswith("memory:"):
            return False
        return self._reader.rows_upper(self.name, epoch=self.epoch) > SPARK_ROWS_MIN

    def _loaded(self, spark: Any) -> Any:
        reader = self._reader
        store_options = {n: v for n, v in reader.store_options.items() if not n.startswith("cache")}
        options = {f"store.{name}": str(value) for name, value in store_options.items()}
        if self.epoch is not None:
            options["epoch"] = str(self.epoch)
        source = dataframes.spark_session(spark).read.format("millpond").options(**options)
        return source.options(view=self.name, pinMs=str(reader.reader_ms)).load(reader.store.uri)
