"""Checks that the executors of a cluster can read the store of a pond, before the first epoch.

Credentials that only the driver has would fail in the first epoch, after all of Spark's retries.  A task here
returns what went wrong instead of raising it, so nothing is retried.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from millpond.engine.task.worker import open_store_here
from millpond.errors import InvalidError, MillpondError
from millpond.state.store.store import StoreError
from millpond.state.store.waiting_store import at_once

if TYPE_CHECKING:
    from millpond.engine.spark.chain import SparkChain

TASKS_MAX = 64


def check_store_access(chain: SparkChain, uri: str, options: Mapping[str, Any], cores: int) -> None:
    """Raise InvalidError if a task cannot list the manifests of the store."""
    tasks = min(cores, TASKS_MAX)
    raw = chain.map(partial(_look, uri, dict(options)), [b""] * tasks, tasks, description="store access")
    for host, failure in (json.loads(one) for one in raw):
        if failure is not None:
            raise InvalidError(
                f"the executors cannot read the store of the pond: {failure['message']}",
                detail=f"on {host}, store {uri.partition('?')[0]}"
                + (f": {failure['detail']}" if failure["detail"] else ""),
                hint=failure["hint"]
                or "give the executors the credentials and network access of the driver, for example with "
                "spark.executorEnv.AWS_ACCESS_KEY_ID and spark.executorEnv.AWS_SECRET_ACCESS_KEY",
            )


def _look(uri: str, options: Mapping[str, Any], item: bytes) -> bytes:
    """In a worker: list one folder of the store; returns [host, failure or null]."""
    failure = None
    try:
        store = at_once(open_store_here(uri, options))
        if uri.startswith("file:"):
            _require_folder(uri)
        store.list("manifests/", after="manifests/9")  # nothing, by one small request
    except (MillpondError, StoreError) as error:
        failure = {"message": error.message, "detail": error.detail, "hint": error.hint}
    return json.dumps([socket.gethostname(), failure]).encode()


def _require_folder(uri: str) -> None:
    """A pond in a folder works on a cluster only if all hosts share the folder."""
    folder = unquote(uri.removeprefix("file://").partition("?")[0])
    if not os.path.isdir(folder):
        raise InvalidError(
            "the folder of the pond does not exist on the host of an executor",
            detail=folder,
            hint="put the pond in a bucket (s3://…), or in a folder that all hosts share",
        )
