"""A stream enriched from a table that changes: old results are corrected, not only new ones.

    python examples/join_table.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile

import pyarrow as pa

import millpond
from millpond.sources.memory import MemorySource

orders = MemorySource(pa.schema([("order", pa.int64()), ("product", pa.string()), ("pieces", pa.int64())]))

with millpond.open(tempfile.mkdtemp(), engine="inline") as pond:
    # A table that any process can change; with a key, insert() replaces the row of that key.
    products = pond.table(
        "products",
        pa.schema([("product", pa.string()), ("category", pa.string()), ("price", pa.int64())]),
        key="product",
    )
    sold = pond.stream("orders", orders).join(products, on="product", kind="left")
    sold.key_by("category").aggregate(orders="count(*)", revenue="sum(pieces * price)").view("by_category")

    pond.insert(
        "products",
        [
            {"product": "lamp", "category": "home", "price": 40},
            {"product": "kayak", "category": "sport", "price": 700},
        ],
    )
    orders.push(
        [
            {"order": 1, "product": "lamp", "pieces": 2},
            {"order": 2, "product": "kayak", "pieces": 1},
            {"order": 3, "product": "tent", "pieces": 1},  # nobody has heard of tents yet
        ]
    )
    before = pond.drain()
    print("at first:          ", pond.read("by_category").sort_by("category").to_pylist())

    pond.insert("products", [{"product": "tent", "category": "sport", "price": 300}])
    pond.insert("products", [{"product": "kayak", "category": "boats", "price": 650}])  # replaces the old row
    after = pond.drain()
    print("the table changed: ", pond.read("by_category").sort_by("category").to_pylist())

    pond.delete("products", [{"product": "lamp"}])
    pond.drain()
    print("a row was deleted: ", pond.read("by_category").sort_by("category").to_pylist())

    print("what the first change did:")
    for row in pond.diff("by_category", before, after).to_pylist():
        print("   ", "+" if row.pop("_w") > 0 else "-", row)
