"""A transaction as an inbox entry: its statements in order, and what the client was told about them.

An item is a change (`verb` insert, update, delete, merge or rows), a query that the client has read
(`read`), or a condition (`require`).  A change has the number of rows that the client was told, and a query
a digest of its answer: when the entry is executed, both must still be so.  The rows of `rows` items are
sections of the payload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import xxhash

from millpond.errors import InvalidError
from millpond.sql.binding.catalog import Catalog
from millpond.state.manifest.snapshot import Snapshot

Item = Mapping[str, Any]

ITEMS_MAX = 10_000
BYTES_MAX = 64 << 20  # of an entry
DIGEST_ROWS_MAX = 10_000  # a larger answer counts as changed as soon as a table that it reads has changed
CHANGES = ("insert", "update", "delete", "merge", "rows")
READ, REQUIRE, ROWS = "read", "require", "rows"


def encoded(items: Sequence[Item], payloads: Sequence[bytes]) -> tuple[dict[str, Any], bytes]:
    """The args and the payload of the entry; InvalidError if it is too large."""
    args: dict[str, Any] = {"items": [dict(item) for item in items]}
    size = len(json.dumps(args)) + sum(map(len, payloads))
    if len(items) > ITEMS_MAX or size > BYTES_MAX:
        raise InvalidError(
            "the transaction is too large",
            detail=f"{len(items)} statements and {size} bytes; "
            f"at most {ITEMS_MAX} statements and {BYTES_MAX} bytes",
            hint="divide it into several transactions; large inserts that stand alone have no such limit",
        )
    return args, b"".join(payloads)


def items_of(args: Mapping[str, Any]) -> list[Item] | None:
    """The items of an entry; None if it is no transaction that this version knows."""
    items = args.get("items")
    if not isinstance(items, list) or not items or not all(isinstance(i, dict) for i in items):
        return None
    return items if all(_is_known(item) for item in items) else None


def _is_known(item: Item) -> bool:
    verb = item.get("verb")
    if verb in (READ, REQUIRE):
        return isinstance(item.get("sql"), str)
    if verb not in CHANGES or not all(isinstance(item.get(k), str) for k in ("table", "name")):
        return False
    if verb == ROWS:
        at = item.get("at")
        return isinstance(at, list) and len(at) == 2 and all(isinstance(n, int) for n in at)
    return isinstance(item.get("sql"), str) and isinstance(item.get("reads"), list)


def rows_of_item(item: Item, payload: bytes) -> pa.Table:
    """The rows of a `rows` item, without their weights."""
    start, length = item["at"]
    try:
        with pa.ipc.open_stream(pa.py_buffer(payload)[start : start + length]) as stream:
            rows = stream.read_all()
            rows.validate()
    except (pa.ArrowException, OSError) as broken:
        raise InvalidError("the rows of a transaction cannot be read", detail=str(broken)) from broken
    return rows.drop_columns(["_w"]) if "_w" in rows.column_names else rows


def answer_digest(names: Sequence[tuple[str, str]], rows: pa.Table) -> str | None:
    """A digest of an answer that does not depend on the order of its rows; None if it is too large.

    >>> one, other = pa.table({"n": [1, 2]}), pa.table({"n": [2, 1]})
    >>> answer_digest([("n", "BIGINT")], one) == answer_digest([("n", "BIGINT")], other)
    True
    """
    if rows.num_rows > DIGEST_ROWS_MAX:
        return None
    listed = sorted(map(repr, zip(*(c.to_pylist() for c in rows.columns), strict=True)))
    return xxhash.xxh3_128_hexdigest(
        "\n".join([repr(list(names)), str(rows.num_rows), *listed]).encode("utf-8", "surrogatepass")
    )


def versions(catalog: Catalog, snapshot: Snapshot, sql: str) -> dict[str, str]:
    """By name: which runs hold the rows of the tables and views that a query reads.

    If they are the same at another epoch, so are the rows; a merge of runs makes them differ, too.
    """
    found = {}
    for one in catalog.expanded(catalog.read_by(sql)):
        spec = catalog.stored(one) if one.kind != "view" else None
        if spec is not None:
            runs = sorted((r.file, r.segment, r.h_min, r.h_max) for r in snapshot.runs(spec.name))
            found[one.name] = xxhash.xxh3_64_hexdigest(repr(runs).encode())
    return found
