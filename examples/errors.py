"""One bad row does not stop the others: it becomes an error row, with its reason, and is counted.

    python examples/errors.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import millpond
from millpond.sources.files import FileSource

place = Path(tempfile.mkdtemp())
readings = place / "readings"
readings.mkdir()
(readings / "1.json").write_text(
    "\n".join(
        [
            json.dumps({"sensor": "a", "value": "20.5 C"}),
            json.dumps({"sensor": "a", "value": "21.5 C"}),
            json.dumps({"sensor": "b", "value": "hot"}),  # the function below cannot read it
            '{"sensor": "c", "value":',  # not even JSON
        ]
    )
)
schema = pa.schema([("sensor", pa.string()), ("value", pa.string())])
parsed = pa.schema([("sensor", pa.string()), ("celsius", pa.float64())])


def parse(row: Any) -> Iterator[dict[str, Any]]:
    number, _unit = row["value"].split()
    yield {"sensor": row["sensor"], "celsius": float(number)}


with millpond.open(place / "pond", engine="inline") as pond:
    rows = pond.stream("readings", FileSource(str(readings), format="json", schema=schema))
    rows.flat_map(parse, parsed, id="parse").key_by("sensor").aggregate(
        readings="count(*)", mean="avg(celsius)"
    ).view("by_sensor")
    pond.drain()

    print("good rows:", pond.read("by_sensor").to_pylist())
    print("bad rows:")
    for error in pond.errors("by_sensor").sort_by("step").to_pylist():
        print(f"    {error['step']}: {error['reason']}\n        {error['row']}")
    print("counted:", {name: n for name, n in pond.head().counts.items() if name.startswith("errors")})
print(f"the same from a shell: millpond errors {place / 'pond'}")
