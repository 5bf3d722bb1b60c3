"""Ponds in Spark: reading and writing with format "millpond".

Spark finds the format by the package `pyspark_millpond`, which uses these files.

| file | what it holds |
|---|---|
| `options.py` | the options of a read or a write |
| `pond_location.py` | opens the pond of some options in a driver or worker process |
| `loaded_view.py` | a view as of the epoch at which a DataFrame was loaded |
| `batch_reader.py`, `pushed_filters.py` | batch reads: hash ranges, point lookups, filters |
| `query_reader.py` | batch reads of the answer of a SQL query |
| `change_reader.py`, `feed_rows.py` | streaming reads: the changes of a view, epoch by epoch |
| `table_writer.py` | batch and streaming writes into a table |
| `spark_types.py` | Arrow columns as Spark expects them |
"""
