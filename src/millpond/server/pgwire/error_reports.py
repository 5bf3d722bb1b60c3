"""Errors and notices as clients of PostgreSQL expect them: SQLSTATE, message, detail, hint and position."""

from __future__ import annotations

import re

from millpond.cancellation import StatementCancelledError
from millpond.errors import (
    ConflictError,
    DataError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)
from millpond.server.authentication import LoginError
from millpond.server.authorization import NotAllowedError
from millpond.server.connection_limits import TooManyConnectionsError
from millpond.server.pgwire.messages import ProtocolError, report
from millpond.server.pgwire.parameter_values import InvalidValueError
from millpond.server.statements import STOPPED
from millpond.sql.copy.pg_error import PgError as PgError

TERMINATED = "terminating connection due to administrator command"
KINDS: tuple[tuple[type[MillpondError], str], ...] = (
    (LoginError, "28P01"),
    (NotAllowedError, "42501"),
    (TooManyConnectionsError, "53300"),
    (ProtocolError, "08P01"),
    (InvalidValueError, "22P02"),
    (StatementCancelledError, "57014"),
    (ConflictError, "40001"),
    (UnavailableError, "58000"),
    (DataError, "XX001"),
    (InternalError, "XX000"),
)

# What an InvalidError says -> its SQLSTATE; the first that matches counts.
PATTERNS: tuple[tuple[str, str], ...] = (
    (r"syntax error|no statement begins with|should stand here|is never closed|this is not SQL", "42601"),
    (r"values were supplied|same number of (result )?columns|without selection list", "42601"),
    (r"^INSERT has more |^number of columns does not match number of values|^VALUES lists must", "42601"),
    (r"^subquery (must return only one column|has too (many|few) columns)", "42601"),
    (r"^operator does not exist", "42883"),
    (r"^op ANY/ALL|requires an OVER clause$|^OVER specified, but", "42809"),
    (r"^cannot cast type \S", "42846"),
    (
        r"types .* cannot be matched$|^argument of \S+ must be type|^column \".*\" is of type|subscript",
        "42804",
    ),
    (r"^window functions are not allowed|window function calls cannot be nested", "42P20"),
    (r"^aggregate function(s are not allowed| calls cannot)", "42803"),
    (r"^unit \".*\" not (recognized|supported)", "22023"),
    (r"^(ORDER|GROUP) BY position \d+ is not in select list", "42P10"),
    (r"FROM-clause entry for table", "42P01"),
    (r"specified in USING clause does not exist", "42703"),
    (r"^column ['\"].*['\"] (specified more than once|is there twice)|is defined twice$", "42701"),
    (r"^cannot use column reference in DEFAULT", "0A000"),
    (r"^window \".*\" does not exist", "42704"),
    (
        r"^(type|index) \".*\" does not exist|type with name .* does not exist|^no type named|^SHOW what",
        "42704",
    ),
    (r"^the expression has more than \d+ levels|nested too deeply", "54001"),
    (r"specified more than once", "42712"),
    (r"referenced table .* not found", "42P01"),
    (r"more than one row returned by a subquery", "21000"),
    (r"ORDER term out of range", "42P10"),
    (r"LIMIT/OFFSET cannot be negative|^(LIMIT|OFFSET) must not be negative", "2201W"),
    (r"can only be used in a transaction", "25P01"),
    (r"only the rows of tables can be changed", "42809"),
    (r"aggregate function calls cannot be nested|cannot contain aggregates", "42803"),
    (r"(date/time field value|interval) out of range", "22008"),
    (r"value too long for type", "22001"),
    (r"invalid input syntax for type (date|time|timestamp|interval)", "22007"),
    (r"there is no value for parameter|prepared statement", "42P02"),
    (
        r"^(relation|table|(materialized )?view) \".*\" does not exist|^no \S.* named|table with name|"
        r"there is no table or view|does not exist.*table|no such table",
        "42P01",
    ),
    (
        r"column .*(not found|does not exist)|(has no|does not have a) column|no column named",
        "42703",
    ),
    (
        r"(function|macro|aggregate).*(does not exist|not found)|no function (matches|\S+ takes|or operator)",
        "42883",
    ),
    (r"ambiguous", "42702"),
    (r"must appear in the group by|cannot be used in .*aggregate|aggregates? (cannot|not)", "42803"),
    (r"there is a .* already|already exists", "42P07"),
    (r"cannot be null|not.null constraint", "23502"),
    (r"duplicate key|primary key or unique constraint|there twice", "23505"),
    (r"check constraint", "23514"),
    (r"cannot affect row a second time", "21000"),
    (r"non-DEFAULT value into column", "428C9"),
    (r"reached (maximum|minimum) value of sequence", "2200H"),
    (r"division by zero|divide by zero", "22012"),
    (r"out of range|overflow|could not cast value .* to decimal", "22003"),
    (r"cannot be dropped, others use it|because other objects depend on it", "2BP01"),
    (r"could not convert|conversion error|invalid input|unable to cast|malformed", "22P02"),
    (r"cannot compare|type mismatch|cannot cast|no operator matches|cannot mix", "42804"),
    (r"schema with name|no schema", "3F000"),
    (r"took longer than", "57014"),
    (r"more than .* (of memory|of disk)|is larger than", "53200"),
    (r"gives more than|at most|too many", "54000"),
    (r"read-only", "25006"),
    (r"not supported|cannot be a materialized view|are for materialized views|only a query", "0A000"),
)
_COMPILED = tuple((re.compile(pattern, re.I), state) for pattern, state in PATTERNS)


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error.

    >>> sqlstate(InvalidError("no table or view named 'x'")), sqlstate(ConflictError("lost"))
    ('42P01', '40001')
    >>> sqlstate(InvalidError('index "x" does not exist')), sqlstate(InvalidError("it is nested too deeply"))
    ('42704', '54001')
    """
    if isinstance(error, PgError):
        return error.state
    if isinstance(error, StatementCancelledError) and error.message in (STOPPED, TERMINATED):
        return "57P01"
    for kind, state in KINDS:
        if isinstance(error, kind):
            return state
    if isinstance(error, InvalidError):
        return next((state for pattern, state in _COMPILED if pattern.search(error.message)), "42000")
    return "XX000"


def error_response(error: BaseException, *, start: int = 0, severity: str = "ERROR") -> bytes:
    """An ErrorResponse; `start` is where the statement begins in the text that the client sent."""
    fields = [("S", severity), ("V", severity), ("C", sqlstate(error))]
    if not isinstance(error, MillpondError):
        return report(
            b"E", [*fields, ("M", "an unexpected error occurred"), ("D", f"{type(error).__name__}: {error}")]
        )
    fields.append(("M", error.message))
    position = _position(error)
    detail = error.detail
    if position is not None and detail is not None:
        detail = re.sub(r"(; )?in the (statement|query)\n.*", "", detail, flags=re.S) or None
    if error.step is not None:
        detail = f"step {error.step!r}" + ("" if detail is None else f": {detail}")
    if detail:
        fields.append(("D", detail))
    if error.hint:
        fields.append(("H", error.hint))
    if position is not None:
        fields.append(("P", str(start + position + 1)))
    return report(b"E", fields)


def _position(error: MillpondError) -> int | None:
    """Where the error is in its statement, in characters."""
    if error.place is None:
        return None
    text, at = error.place
    return None if at is None else len(text.encode()[: at[0]].decode(errors="ignore"))


_WARNINGS = {
    "there is no transaction in progress": "25P01",
    "there is already a transaction in progress": "25001",
}


def notice(message: str) -> bytes:
    """A NoticeResponse; what PostgreSQL warns about is a warning."""
    state = _WARNINGS.get(message)
    severity = "NOTICE" if state is None else "WARNING"
    return report(b"N", [("S", severity), ("V", severity), ("C", state or "00000"), ("M", message)])
