"""Converts a result to the types that its description promised."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.outcome import Outcome
from millpond.sql.pg_catalog.pg_types import column_type
from millpond.sql.text.duckdb_parser import parser


def as_described(made: Outcome, promised: Sequence[tuple[str, str]]) -> Outcome:
    """The outcome with the promised types: a parameter's value may have given it narrower ones."""
    assert made.columns is not None
    if len(promised) != len(made.columns):
        raise PgError("0A000", "cached plan must not change result type", hint="prepare the statement again")
    kinds = [kind for _, kind in promised]
    if made.types == kinds or all(
        column_type(a) == column_type(b) for a, b in zip(made.types, kinds, strict=True)
    ):
        return made
    table = made.table
    if table is not None:
        names = [f"c{n}" for n in range(len(kinds))]
        con = parser().cursor()
        con.register("made", table.rename_columns(names))
        listed = ", ".join(
            f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(names, kinds, strict=True)
        )
        try:
            table = con.sql(f"select {listed} from made").to_arrow_table()
        finally:
            con.close()
    return Outcome(made.tag, list(promised), table, made.stream, made.notices, made.reports)
