"""Closes a pond: the run, the streaming queries that stage rows for it, and the SQL sessions."""

from __future__ import annotations

from millpond.pond.execution import Execution
from millpond.pond.location import folder_of
from millpond.pond.sessions import Sessions
from millpond.sources.streaming_dataframe import stop_queries
from millpond.state.store.location import is_local


def close_pond(execution: Execution, sessions: Sessions, *, raises: bool) -> None:
    """Release everything, also if the run had failed; with `raises` its error is raised at the end."""
    try:
        execution.close(raises=raises)
    finally:
        store = execution.components.store
        if is_local(store.uri):
            stop_queries(folder_of(store, ""))
        sessions.close()
