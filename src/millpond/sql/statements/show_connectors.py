"""SHOW CONNECTORS: the connectors of sources, of copied tables and of sinks, with what they can give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.sql.result import Result
from millpond.sql.statements.create_source import SOURCE_OPTIONS
from millpond.sql.statements.replicated_table import TABLE_OPTIONS
from millpond.sql.statements.sink_connectors import SETTINGS, SINK_CONNECTORS
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_COLUMNS = ("connector", "kind", "guarantee", "modes", "options")


def run(session: SqlSession, words: Words) -> Result:
    words.end()
    rows = [
        (name, kind, "exactly_once", "", ", ".join(given))
        for kind, known in (("source", SOURCE_OPTIONS), ("table", TABLE_OPTIONS))
        for name, given in known.items()
    ]
    for name, found in SINK_CONNECTORS.items():
        options = ", ".join((*found.options, *SETTINGS))
        rows.append((name, "sink", found.guarantee, ", ".join(found.modes), options))
    columns = [pa.array(values, pa.string()) for values in zip(*sorted(rows), strict=True)]
    table = pa.table(columns, names=list(_COLUMNS))
    return Result.of_rows(list(_COLUMNS), ["VARCHAR"] * len(_COLUMNS), table)
