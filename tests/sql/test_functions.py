"""Every scalar function that DuckDB can bind means the same after it went through a bound plan and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from millpond.errors import InvalidError
from millpond.sql.binding.bind import Binder
from millpond.sql.bound.reader import read_plan
from millpond.sql.bound.relations import BoundGet, BoundProject
from millpond.sql.lowering.expressions import StepColumn, render
from tests.sql.functions import COLUMNS, MORE, calls, functions, samples

REFUSED = Path(__file__).parent / "functions_refused.txt"


@pytest.mark.slow
def test_functions_mean_the_same_when_written_again() -> None:
    con = duckdb.connect()
    con.execute("set timezone = 'UTC'")
    samples(con)
    binder = Binder()
    binder.table("s", [StepColumn(name, kind) for name, (kind, _) in COLUMNS.items()])
    same, refused, wrong = set(), {}, {}
    tried = [(name, list(calls(name, types, more))) for name, types, more in functions(con)]
    tried += [(call.split("(")[0], [call]) for call in MORE]
    for name, found in tried:
        call = next((c for c in found if bindable(con, c)), None)
        if call is None:
            refused.setdefault(name, "DuckDB takes none of the calls that were tried")
            continue
        try:
            text = written(binder, call)
        except InvalidError as error:
            refused[name] = error.message
            continue
        if text is None:  # a macro that is more than an expression
            continue
        wanted, given = answer(con, call), answer(con, text)
        if wanted == given:
            same.add(name)
        else:
            wrong[call] = (text, wanted, given)
    assert not wrong
    assert len(same) > 750
    listed = "".join(f"{n}: {why}\n" for n, why in sorted(refused.items()) if n not in same)
    if not REFUSED.exists():
        REFUSED.write_text(listed)
        pytest.fail("the list of refused functions was not there; it was written: look at it and keep it")
    assert listed == REFUSED.read_text(), "delete the list to have it written anew"


def bindable(con: duckdb.DuckDBPyConnection, call: str) -> bool:
    try:
        con.sql(f"select {call} from s")
    except duckdb.Error:
        return False
    return True


def written(binder: Binder, call: str) -> str | None:
    bound = binder.plan(f"select {call} from s")
    if bound["type"] != "LOGICAL_PROJECTION" or bound["children"][0]["type"] != "LOGICAL_GET":
        return None
    plan = read_plan(bound)
    assert isinstance(plan, BoundProject) and isinstance(plan.input, BoundGet)
    names = list(COLUMNS)
    read = plan.input.columns
    columns = [StepColumn(names[n] if n < len(names) else names[0], "INTEGER") for n in read]
    return render(plan.outputs[0], columns)


def answer(con: duckdb.DuckDBPyConnection, text: str) -> Any:
    try:
        return [str(row) for row in con.execute(f"select {text} from s").fetchall()]
    except duckdb.Error as error:
        return type(error)
