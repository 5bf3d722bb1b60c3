"""COPY: what is copied, where to, and in which format."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.server.pgwire.error_reports import PgError
from millpond.sql.text.parse import SqlFragment, Words


@dataclass(frozen=True)
class CopyStatement:
    into: bool  # from the client into a table
    table: str | None
    columns: tuple[str, ...] | None
    query: SqlFragment | None
    format: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    quote: str = '"'
    escape: str = '"'
    header: bool = False


def parse_copy(fragment: SqlFragment) -> CopyStatement:
    """Read COPY … FROM STDIN or COPY … TO STDOUT.

    >>> from millpond.sql.text.parse import statements
    >>> made = parse_copy(statements("COPY t (a) FROM STDIN WITH (FORMAT csv, HEADER)", "postgres")[0])
    >>> made.table, made.columns, made.format, made.header
    ('t', ('a',), 'csv', True)
    """
    words = Words(fragment, 1)
    table: str | None = None
    columns: tuple[str, ...] | None = None
    query: SqlFragment | None = None
    if fragment.word(1) == "(":
        query, words.at = fragment.bracket(1)
    else:
        table = words.name("name of the table")
        if fragment.word(words.at) == "(":
            columns = tuple(words.names())
    into = words.take("FROM")
    if not into:
        words.need("TO")
    target = "STDIN" if into else "STDOUT"
    if not words.take(target):
        raise PgError(
            "42501", f"COPY only reads from the client and writes to it: write COPY … {target}", hint="\\copy"
        )
    if into and query is not None:
        fragment.fail("a query cannot be copied into", 1)
    return _with_options(words, CopyStatement(into, table, columns, query))


def _with_options(words: Words, made: CopyStatement) -> CopyStatement:
    given: dict[str, str] = {}
    words.take("WITH")
    if words.fragment.word(words.at) == "(":
        inner, words.at = words.fragment.bracket(words.at)
        for part in inner.split():
            if part.tokens:
                given[part.word(0)] = part.tokens[1].text if len(part) > 1 else "true"
                if part.word(0) == "FORCE_NULL" or part.word(0) == "FORCE_NOT_NULL":
                    raise PgError("0A000", f"COPY option {part.word(0)} is not supported")
    while not words.over:  # the old form: COPY t FROM STDIN CSV HEADER DELIMITER ','
        name = words.fragment.word(words.at)
        words.at += 1
        if name in ("CSV", "BINARY"):
            given["FORMAT"] = name.lower()
        elif name == "HEADER":
            given[name] = "true"
        elif name in ("DELIMITER", "NULL", "QUOTE", "ESCAPE"):
            words.take("AS")
            given[name] = words.text()
        else:
            words.at -= 1
            words.fail("this is no option of COPY")
    form = given.pop("FORMAT", "text").lower()
    if form not in ("text", "csv", "binary"):
        raise PgError("22023", f'COPY format "{form}" not recognized', hint="text, csv or binary")
    csv = form == "csv"
    delimiter = given.pop("DELIMITER", "," if csv else "\t").replace("\\t", "\t")
    null = given.pop("NULL", "" if csv else "\\N")
    quote = given.pop("QUOTE", '"')
    escape = given.pop("ESCAPE", quote)
    header = given.pop("HEADER", "false").lower() in ("true", "on", "1", "match")
    given.pop("ENCODING", None)
    if given:
        raise PgError("42601", f"COPY has no option {next(iter(given)).lower()}")
    if len(delimiter.encode()) != 1 or len(quote.encode()) != 1 or len(escape.encode()) != 1:
        raise PgError("22023", "a delimiter, a quote and an escape of COPY are one character each")
    return CopyStatement(
        made.into, made.table, made.columns, made.query, form, delimiter, null, quote, escape, header
    )
