"""Converts a result to the types that its description promised."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.server.pgwire.error_reports import PgError
from millpond.server.pgwire.outcome import Outcome
from millpond.sql.pg_catalog.pg_types import NUMERIC, column_type
from millpond.sql.text.duckdb_parser import parser


def as_described(made: Outcome, promised: Sequence[tuple[str, str]]) -> Outcome:
    """The outcome with the promised types: a parameter's value may have given it narrower ones."""
    assert made.columns is not None
    if len(promised) != len(made.columns):
        raise PgError("0A000", "cached plan must not change result type", hint="prepare the statement again")
    kinds = [kind for _, kind in promised]
    kinds = [own if _same(own, kind) else kind for own, kind in zip(made.types, kinds, strict=True)]
    if made.types == kinds:
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
    columns = [(name, kind) for (name, _), kind in zip(promised, kinds, strict=True)]
    return Outcome(made.tag, columns, table, made.stream, made.notices, made.reports)


def _same(own: str, promised: str) -> bool:
    """Are both shown as the same type?  A numeric keeps its own scale, which goes with each value."""
    one, other = column_type(own), column_type(promised)
    return one == other or (one.type is other.type is NUMERIC and not one.is_array and not other.is_array)
