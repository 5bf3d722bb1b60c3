"""COPY: what is copied, where to, and in which format."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond.sql.binding.types import quoted
from millpond.sql.copy.pg_error import PgError
from millpond.sql.text.parse import SqlFragment, Words, statements


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
    matches_header: bool = False  # HEADER MATCH: the first line has the names of the columns
    force_null: frozenset[str] = frozenset()  # names in lower case; "*" is all columns
    force_not_null: frozenset[str] = frozenset()
    force_quote: frozenset[str] = frozenset()


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
            "42501",
            f"COPY reads no files and writes none: write COPY … {target}",
            hint="in psql \\copy; in Python pond.sql('COPY t FROM STDIN', stdin=open(path)); "
            "CREATE SOURCE and CREATE SINK follow files",
        )
    if into and query is not None:
        fragment.fail("a query cannot be copied into", 1)
    return _with_options(words, CopyStatement(into, table, columns, query))


def _with_options(words: Words, made: CopyStatement) -> CopyStatement:
    given: dict[str, str] = {}
    forced: dict[str, frozenset[str]] = {}
    words.take("WITH")
    if words.fragment.word(words.at) == "(":
        inner, words.at = words.fragment.bracket(words.at)
        for part in inner.split():
            if part.tokens:
                if part.word(0) in _FORCED:
                    forced[part.word(0)] = _columns(part)
                else:
                    given[part.word(0)] = part.tokens[1].text if len(part) > 1 else "true"
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
    header = given.pop("HEADER", "false").lower()
    given.pop("ENCODING", None)
    if given:
        raise PgError("42601", f"COPY has no option {next(iter(given)).lower()}")
    if len(delimiter.encode()) != 1 or len(quote.encode()) != 1 or len(escape.encode()) != 1:
        raise PgError("22023", "a delimiter, a quote and an escape of COPY are one character each")
    for name in forced:
        if not csv or made.into == (name == "FORCE_QUOTE"):
            side = "COPY TO" if name == "FORCE_QUOTE" else "COPY FROM"
            raise PgError("0A000", f"COPY {name} is only for {side} with FORMAT csv")
    return replace(
        made,
        format=form,
        delimiter=delimiter,
        null=null,
        quote=quote,
        escape=escape,
        header=header in ("true", "on", "1", "match"),
        matches_header=header == "match" and made.into,
        force_null=forced.get("FORCE_NULL", frozenset()),
        force_not_null=forced.get("FORCE_NOT_NULL", frozenset()),
        force_quote=forced.get("FORCE_QUOTE", frozenset()),
    )


_FORCED = ("FORCE_NULL", "FORCE_NOT_NULL", "FORCE_QUOTE")


def _columns(part: SqlFragment) -> frozenset[str]:
    """The columns of FORCE_NULL (a, b) and similar; `*` is all of them."""
    words = Words(part, 1)
    if words.take("*"):
        words.end()
        return frozenset(["*"])
    return frozenset(name.lower() for name in words.names())


def query_of(copy: CopyStatement) -> SqlFragment:
    """The query whose rows COPY … TO STDOUT gives."""
    if copy.query is not None:
        text = copy.query.sql
    else:
        assert copy.table is not None
        listed = "*" if copy.columns is None else ", ".join(quoted(c) for c in copy.columns)
        text = f"SELECT {listed} FROM {quoted(copy.table)}"
    (found,) = statements(text, "postgres")
    return found
