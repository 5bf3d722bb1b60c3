"""Ponds and Spark: a view as a DataFrame, its changes as a stream, and a stream into a table.

    python examples/spark_bridge.py

Needs Java 17.
"""

import tempfile
from pathlib import Path

import millpond
from millpond.engine.spark.session import make_session

place = Path(tempfile.mkdtemp())
spark = make_session("local[2]")

pond = millpond.open(place / "pond", engine="inline")
trips = pond.table("trips", {"id": int, "city": str, "km": int}, key="id")
trips.key_by("city").aggregate(trips="count(*)", km="sum(km)").view("cities")
pond.table("alerts", {"city": str, "km": int})
pond.insert("trips", [{"id": n, "city": ["Bern", "Oslo"][n % 2], "km": n} for n in range(10)])
pond.drain()

# A view of one epoch: later commits do not change this DataFrame.
cities = spark.read.format("millpond").option("view", "cities").load(str(place / "pond"))
print("cities:", sorted(tuple(row) for row in cities.collect()))

# The changes of the view, filtered by Spark, go back into a table of the pond; each batch counts once.
changes = spark.readStream.format("millpond").options(view="cities", mode="upsert").load(str(place / "pond"))
alerts = changes.filter("km > 20 and _op = 'upsert'").select("city", "km")


def forward() -> None:
    """Process what is new and end; the checkpoint remembers the epoch."""
    writer = alerts.writeStream.format("millpond").option("table", "alerts").trigger(availableNow=True)
    writer.option("checkpointLocation", str(place / "checkpoint")).start(
        str(place / "pond")
    ).awaitTermination()


forward()
pond.insert("trips", {"id": 10, "city": "Bern", "km": 100})
pond.drain()
forward()
pond.drain()
print("alerts:", sorted(tuple(row.values()) for row in pond.read("alerts").to_pylist()))

# A DataFrame of Spark as a stream of the pond.
with pond.changing():
    pond.stream("squares", spark.range(5).selectExpr("id", "id * id as square")).view("squares")
pond.drain()
print("squares:", sorted(row["square"] for row in pond.read("squares").to_pylist()))

pond.close()
spark.stop()
