"""Types as users write them, and DuckDB's names for them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb

from millpond.errors import InvalidError
from millpond.kernels.sql_pictures import picture
from millpond.sql.binding.bind import as_user_error
from millpond.sql.text.angle_types import has_angles, read_type
from millpond.sql.text.dialects import type_text
from millpond.sql.text.duckdb_parser import parser
from millpond.sql.text.parse import SqlFragment

SERIALS = {"SERIAL": "INTEGER", "BIGSERIAL": "BIGINT", "SMALLSERIAL": "SMALLINT"}
SERIALS |= {"SERIAL4": "INTEGER", "SERIAL8": "BIGINT", "SERIAL2": "SMALLINT"}


def type_of(fragment: SqlFragment) -> str:
    """Return DuckDB's logical type for a type as users write it."""
    said = fragment.sql
    if fragment.word(0) in SERIALS:
        fragment.fail(f"{said} is only for columns of CREATE TABLE", 0, "use int or bigint here")
    if has_angles(fragment):
        return _known(fragment, [read_type(fragment, type_of)])
    return _known(fragment, _spellings(said, fragment.dialect))


def _known(fragment: SqlFragment, spellings: Sequence[str]) -> str:
    """Return DuckDB's name for a type, from the first spelling that it knows."""
    failed: duckdb.Error | None = None
    for text in spellings:
        try:
            found = str(parser().sql(f"select cast(null as {text}) as c").types[0])
        except duckdb.Error as error:
            failed = failed or error
            continue
        return found
    assert failed is not None
    problem = as_user_error(failed, fragment.sql, len("select cast(null as "))
    at = len(fragment.text[: fragment.start].encode())
    place = (at, len(fragment.sql.encode()))
    unknown = InvalidError(
        f"no type named {fragment.sql}",
        detail="in the statement\n" + picture(fragment.text, place),
        hint=problem.hint,
    )
    unknown.place = (fragment.text, place)
    raise unknown from failed


# PostgreSQL's numeric without bounds: 29 digits before the point and 9 after it, so that the product of three
# columns still has digits before the point (decision 37).  DuckDB's own default has three after it.
_UNBOUNDED = re.compile(r"\b(numeric|decimal|dec)\b(?!\s*\()", re.IGNORECASE)
_FLOAT = re.compile(r"\bfloat\b(?:\s*\(\s*(\d+)\s*\))?", re.IGNORECASE)  # of so many bits; DuckDB's is real
_NAME = re.compile(r"^name\b", re.IGNORECASE)  # the type of names in PostgreSQL's catalog


def _spellings(said: str, dialect: str) -> list[str]:
    if dialect == "postgres":
        said = _UNBOUNDED.sub("DECIMAL(38,9)", _NAME.sub("VARCHAR", said))
        said = _FLOAT.sub(lambda found: "float4" if int(found[1] or 53) < 25 else "float8", said)
    found = [said] if dialect in ("postgres", "duckdb") else []
    try:
        found.append(type_text(said, dialect))
    except Exception:  # DuckDB reports what is wrong with a type
        return found or [said]
    return found
