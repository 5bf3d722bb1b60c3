"""The queries in the text of a statement, and its expressions as queries, each with its place in the text.

Law: an excerpt has a section of the statement unchanged, so every place in that section has one in the
statement.  What stands around the section only makes a query of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millpond.errors import InvalidError
from millpond.sql.binding.types import quoted
from millpond.sql.text.emit_clause import take_emission
from millpond.sql.text.parse import SqlFragment
from millpond.sql.text.with_changes import behind_columns

TextRange = tuple[int, int]  # (first byte, length in bytes)
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE")
_ENDS = ("RETURNING", "WHERE", "FROM", "USING", "ON", "WHEN")


@dataclass(frozen=True)
class Excerpt:
    sql: str
    before: int  # the bytes of `sql` before the section of the statement
    start: int  # where the section begins in the statement, in bytes
    length: int
    table: str = ""  # whose columns get the values, if the query computes rows of a table
    columns: tuple[str, ...] = ()  # the columns, if not all of them in their order

    def in_statement(self, at: TextRange) -> TextRange | None:
        """The place in the statement of a place in `sql`; None if it is outside of the section.

        >>> Excerpt("SELECT a + 'x' FROM t", 7, 20, 7).in_statement((9, 1))
        (22, 1)
        """
        first, end = max(at[0] - self.before, 0), at[0] + max(at[1], 1) - self.before
        if end <= 0 or first >= self.length:
            return None
        return self.start + first, min(end, self.length) - first


def excerpts(statement: SqlFragment) -> Iterator[Excerpt]:
    """The queries and expressions of a statement, in their order."""
    read = {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete, "MERGE": _merge, "ALTER": _rules}
    found = read.get(statement.word(0))
    if statement.has(0, "CREATE", "TABLE") and statement.word(len(statement) - 1) != "":
        found = _table
    yield from _query(statement) if found is None else found(statement)


def _section(part: SqlFragment, before: str = "", after: str = "") -> Iterator[Excerpt]:
    if part.tokens:
        start = len(part.text[: part.start].encode())
        yield Excerpt(before + part.sql + after, len(before.encode()), start, len(part.sql.encode()))


def _query(statement: SqlFragment) -> Iterator[Excerpt]:
    """The query of a statement, in brackets or not: `CREATE VIEW v AS SELECT …`, `COPY (SELECT …) TO`."""
    verb = statement.word(0)
    if verb == "COPY" and statement.word(1) == "(":
        statement, _ = statement.bracket(1)
    begin = 2 if verb == "CREATE" else 0  # behind CREATE TABLE
    start = next((n for n in statement.outside(begin) if statement.word(n) in _QUERIES), None)
    if start is None or (verb == "CREATE" and statement.word(1) == "FUNCTION"):
        return
    if statement.word(start) == "WITH" and statement.word(start + 1) == "(":  # WITH (options) AS SELECT
        start = next((n for n in statement.outside(start + 1) if statement.word(n) in _QUERIES), start)
    query = statement.part(start)
    if verb == "CREATE":
        try:
            query, _ = take_emission(query)
        except InvalidError:
            return
    yield from _section(query)


def _table(statement: SqlFragment) -> Iterator[Excerpt]:
    """The query of CREATE TABLE AS, or the conditions and values of its columns."""
    if any(statement.word(n) in ("SELECT", "VALUES") for n in statement.outside()):
        yield from _query(statement)
    else:
        yield from _rules(statement)


def _rules(statement: SqlFragment) -> Iterator[Excerpt]:
    """CHECK, DEFAULT and GENERATED in a definition, over the columns that it lists or those of the table."""
    table = _from_columns(statement)
    for place in range(len(statement)):
        if statement.word(place) == "CHECK" and statement.word(place + 1) == "(":
            yield from _section(statement.bracket(place + 1)[0], f"SELECT 1 {table} WHERE (", ")")
        elif statement.has(place, "GENERATED", "ALWAYS", "AS") and statement.word(place + 3) == "(":
            yield from _section(statement.bracket(place + 3)[0], "SELECT (", f") {table}".rstrip())
        elif statement.word(place) == "DEFAULT" and statement.word(place - 1) != "BY":
            yield from _section(_default(statement, place + 1), "SELECT ")


def _default(statement: SqlFragment, start: int) -> SqlFragment:
    depth = 0
    for end in range(start, len(statement)):
        word = statement.word(end)
        if depth == 0 and word in (",", ")", "NOT", "NULL", "PRIMARY", "UNIQUE", "CHECK", "COMMENT"):
            return statement.part(start, end)
        depth += (word in ("(", "[")) - (word in (")", "]"))
    return statement.part(start)


def _from_columns(statement: SqlFragment) -> str:
    """A FROM clause with the columns that CREATE TABLE lists, or the table that ALTER changes."""
    if statement.word(0) == "ALTER":
        at = 2 + 2 * statement.has(2, "IF", "EXISTS") + statement.has(2, "ONLY")
        return f"FROM {statement.part(at, at + 1).sql}"
    open_at = statement.find("(")
    if open_at is None:
        return ""
    listed = []
    for column in statement.bracket(open_at)[0].split(types=True):
        kind = _type_in(column)
        if kind is not None:
            listed.append(f"CAST(NULL AS {kind}) AS {quoted(column.tokens[0].text)}")
    return f"FROM (SELECT {', '.join(listed)}) AS columns_of_it" if listed else ""


_AFTER_TYPE = frozenset(
    [
        "CHECK",
        "CONSTRAINT",
        "DEFAULT",
        "GENERATED",
        "NOT",
        "NULL",
        "PRIMARY",
        "UNIQUE",
        "REFERENCES",
        "COLLATE",
    ]
)
_NO_COLUMN = frozenset(["CHECK", "CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "WATERMARK", "LIKE"])


def _type_in(column: SqlFragment) -> str | None:
    if len(column) < 2 or column.word(0) in _NO_COLUMN:
        return None
    end = next((n for n in column.outside(1) if column.word(n) in _AFTER_TYPE), len(column))
    return column.part(1, end).sql or None


# -- changes of rows ------------------------------------------------------------------------


def _relation(statement: SqlFragment, start: int) -> tuple[str, int]:
    """The target of a change with its alias, and the place after them."""
    end = start + 1
    while statement.word(end) == ".":
        end += 2
    if statement.word(end) == "AS":
        return statement.part(start, end + 2).sql, end + 2
    plain = statement.word(end)
    if plain and plain not in ("SET", "(", "VALUES", "DEFAULT", *_QUERIES, *_ENDS) and plain[0].isalpha():
        return statement.part(start, end + 1).sql, end + 1
    return statement.part(start, end).sql, end


def _until(statement: SqlFragment, start: int, *words: str) -> SqlFragment:
    """What begins at a place, up to the first of these words."""
    ends = [n for word in words if (n := statement.find(word, start=start)) is not None]
    return statement.part(start, min(ends, default=len(statement)))


def _insert(statement: SqlFragment) -> Iterator[Excerpt]:
    table, listed = _relation(statement, 2)
    at = behind_columns(statement, listed)
    conflict = statement.find("ON", "CONFLICT", start=at)
    rows = statement.part(at, conflict) if conflict is not None else _until(statement, at, "RETURNING")
    if not rows.has(0, "DEFAULT"):
        named = statement.bracket(listed)[0].split() if at > listed else []
        columns = tuple(one.tokens[0].text for one in named if one.tokens)
        yield from (replace(one, table=_name(statement, 2), columns=columns) for one in _section(rows))
    if conflict is not None and (place := statement.find("SET", start=conflict)) is not None:
        plain = statement.part(2, 3).sql
        source = f" FROM {table}, (SELECT * FROM {plain}) AS excluded"
        yield from _assigned(_until(statement, place + 1, "WHERE", "RETURNING"), source)
        yield from _condition(statement, place, source)
    yield from _returning(statement, f" FROM {table}")


def _update(statement: SqlFragment) -> Iterator[Excerpt]:
    table, at = _relation(statement, 1 + statement.has(1, "ONLY"))
    others = statement.find("FROM", start=at)
    source = f" FROM {table}"
    if others is not None:
        listed = _until(statement, others + 1, "WHERE", "RETURNING")
        yield from _section(listed, f"SELECT 1 FROM {table}, ")
        source += f", {listed.sql}"
    if statement.word(at) == "SET":
        listed = _until(statement, at + 1, "FROM", "WHERE", "RETURNING")
        yield from _assigned(listed, source, _name(statement, 1 + statement.has(1, "ONLY")))
    yield from _condition(statement, at, source)
    yield from _returning(statement, source)


def _delete(statement: SqlFragment) -> Iterator[Excerpt]:
    table, at = _relation(statement, 2)
    source = f" FROM {table}"
    if statement.word(at) == "USING":
        listed = _until(statement, at + 1, "WHERE", "RETURNING")
        yield from _section(listed, f"SELECT 1 FROM {table}, ")
        source += f", {listed.sql}"
    yield from _condition(statement, at, source)
    yield from _returning(statement, source)


def _merge(statement: SqlFragment) -> Iterator[Excerpt]:
    table, at = _relation(statement, 2)
    if statement.word(at) != "USING":
        return
    given = _until(statement, at + 1, "ON")
    yield from _section(given, "SELECT 1 FROM ")
    source = f" FROM {table}, {given.sql}"
    on = statement.find("ON", start=at)
    if on is None:
        return
    yield from _section(_until(statement, on + 1, "WHEN"), "SELECT 1" + source + " WHERE ")
    whens = [n for n in statement.outside(on) if statement.word(n) == "WHEN"]
    for start, end in zip(whens, [*whens[1:], len(statement)], strict=True):
        clause = statement.part(start, end)
        then = clause.find("THEN")
        if then is None:
            continue
        also = clause.find("AND")
        if also is not None and also < then:
            yield from _section(clause.part(also + 1, then), "SELECT 1" + source + " WHERE ")
        if clause.has(then + 1, "UPDATE", "SET"):
            yield from _assigned(_until(clause, then + 3, "RETURNING"), source)
        values = clause.find("VALUES")
        if values is not None and clause.word(values + 1) == "(":
            yield from _section(clause.bracket(values + 1)[0], "SELECT ", source)
    yield from _returning(statement, source)


def _assigned(listed: SqlFragment, source: str, table: str = "") -> Iterator[Excerpt]:
    for one in listed.split():
        equals = one.find("=")
        if equals is None or one.has(equals + 1, "DEFAULT"):
            continue
        column = (one.tokens[0].text,) if equals == 1 else ()
        for each in _section(one.part(equals + 1), "SELECT ", source):
            yield replace(each, table=table if column else "", columns=column)


def _name(statement: SqlFragment, start: int) -> str:
    """The name of the table that begins here, without its schema."""
    while statement.word(start + 1) == ".":
        start += 2
    return str(statement.tokens[start].text)


def _condition(statement: SqlFragment, start: int, source: str) -> Iterator[Excerpt]:
    where = statement.find("WHERE", start=start)
    if where is not None:
        yield from _section(_until(statement, where + 1, "RETURNING"), f"SELECT 1{source} WHERE ")


def _returning(statement: SqlFragment, source: str) -> Iterator[Excerpt]:
    place = statement.find("RETURNING")
    if place is not None:
        yield from _section(statement.part(place + 1), "SELECT ", source)
