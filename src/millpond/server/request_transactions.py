"""Transactions of protocols whose requests stand by themselves: HTTP and Flight SQL.

Law: a transaction lasts at most one request.  One that its request does not end is rolled back, and the
client is told so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import InvalidError
from millpond.server.client_session import ClientSession


@contextmanager
def one_request(client: ClientSession) -> Iterator[None]:
    """Run the statements of one request."""
    try:
        yield
    except BaseException:
        _rolled_back(client)
        raise
    if _rolled_back(client):
        raise InvalidError(
            "the request begins a transaction and does not end it",
            detail="nothing of it was written",
            hint="send BEGIN, the statements and COMMIT in one request",
        )


def _rolled_back(client: ClientSession) -> bool:
    """Roll back the transaction of a client, if it is in one."""
    if not getattr(client, "in_transaction", False):
        return False
    client.execute("ROLLBACK")
    return True
