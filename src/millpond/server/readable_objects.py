"""The tables and views that a client may read, and their keys."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from millpond.plan.objects import SqlObject
from millpond.server.authorization import AllowAll, NotAllowedError
from millpond.server.client_session import ClientSession
from millpond.sql.binding.catalog import Catalog
from millpond.sql.binding.types import quoted
from millpond.sql.session import SqlSession
from millpond.sql.text.parse import statements


def readable_objects(client: ClientSession, session: SqlSession, kinds: Collection[str]) -> list[SqlObject]:
    """The objects of some kinds that the client may read, by name."""
    return [
        found
        for found in sorted(session.catalog.objects.values(), key=lambda o: o.name)
        if found.kind in kinds and _may_read(client, session, found.name)
    ]


def _may_read(client: ClientSession, session: SqlSession, name: str) -> bool:
    authorizer = client.pool.authorizer
    if isinstance(authorizer, AllowAll):
        return True
    try:
        authorizer.check(client.user, statements(f"SELECT * FROM {quoted(name)}", "postgres")[0], session)
    except NotAllowedError:
        return False
    return True


def key_columns(catalog: Catalog, found: SqlObject) -> list[tuple[str, pa.DataType]]:
    """The columns of a view's key, under the names that users see, with their stored types."""
    spec = None if found.kind == "view" else catalog.stored(found)
    if spec is None or spec.rule != "latest":
        return []
    shown = {c.stored_name: c.name for c in found.columns}
    if any(k not in shown for k in spec.key):
        return []
    return [(shown[k], spec.schema.field(k).type) for k in spec.key]
