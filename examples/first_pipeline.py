"""A folder of JSON files becomes a view that stays up to date.

    python examples/first_pipeline.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import json
import tempfile
from pathlib import Path

import millpond
from millpond.sources.files import FileSource

place = Path(tempfile.mkdtemp())
orders = place / "orders"
orders.mkdir()


def arrive(name: str, rows: list[dict[str, object]]) -> None:
    """A new file of orders, put into the folder whole."""
    draft = orders / f".{name}"
    draft.write_text("\n".join(json.dumps(row) for row in rows))
    draft.rename(orders / name)


arrive("1.json", [{"city": "Bern", "price": 12}, {"city": "Oslo", "price": 30}, {"city": "Bern", "price": 5}])

with millpond.open(place / "pond", engine="inline") as pond:
    pond.stream("orders", FileSource(str(orders), format="json")).key_by("city").aggregate(
        orders="count(*)", revenue="sum(price)"
    ).view("by_city")

    epoch = pond.drain()  # or pond.start(), to go on in the background
    print(f"epoch {epoch}:", pond.read("by_city").sort_by("city").to_pylist())

    arrive("2.json", [{"city": "Oslo", "price": 70}, {"city": "Kyiv", "price": 8}])
    epoch = pond.drain()
    print(f"epoch {epoch}:", pond.read("by_city").sort_by("city").to_pylist())
    print("one key:", pond.lookup("by_city", "Oslo").to_pylist())

# Any other process can read it too, also while it runs, and needs neither this code nor Spark.
print("read again:", millpond.open(place / "pond").read("by_city").num_rows, "rows")
print(f"look at it: millpond read {place / 'pond'} by_city")
