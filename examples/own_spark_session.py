"""On Spark, in a session of your own: Millpond's settings are yours to take over.

    python examples/own_spark_session.py

Needs Java 17.  Without `spark=` Millpond makes such a session by itself.
"""

import os
import sys
import tempfile
import warnings

import pyarrow as pa
from pyspark.sql import SparkSession

import millpond
from millpond.engine.spark.session import SETTINGS
from millpond.sources.memory import MemorySource

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need a python that has millpond
builder = SparkSession.builder.master("local[2]").appName("my own")
for (
    name,
    value,
) in SETTINGS.items():  # they make epochs fast; without them Millpond runs, and says what it lacks
    builder = builder.config(name, value)
spark = builder.getOrCreate()

bids = MemorySource(pa.schema([("auction", pa.int64()), ("price", pa.int64())]))
bids.push([{"auction": n % 3, "price": n} for n in range(1, 1001)])

warnings.simplefilter("error")  # so we would hear of settings that are missing
with millpond.open(tempfile.mkdtemp(), spark=spark, parallelism=2) as pond:
    best = pond.stream("bids", bids).key_by("auction").aggregate(bids="count(*)", highest="max(price)")
    best.view("best")

    first = pond.drain()
    print(f"epoch {first}:", pond.read("best").sort_by("auction").to_pylist())

    pond.rescale(4)  # the next epochs have up to four tasks a level, as their rows need; no state is moved
    bids.push([{"auction": 1, "price": 5000}])
    last = pond.drain()
    print(f"epoch {last}:", pond.read("best").sort_by("auction").to_pylist())
    print("tasks of each level:", pond.head().metrics["tasks"], "of", pond.head().parallelism)

# The session is still yours: read a view into a DataFrame, and stop it when you are done.
rows = millpond.open(pond.store.uri).read("best").to_pylist()
spark.createDataFrame(rows).orderBy("auction").show()
spark.stop()
