"""PostgreSQL's functions over text that DuckDB lacks or means otherwise."""

from __future__ import annotations

import re
import unicodedata

from millpond.kernels.postgres.rows import row_function

_RESERVED = frozenset(
    [
        "all",
        "analyse",
        "analyze",
        "and",
        "any",
        "array",
        "as",
        "asc",
        "asymmetric",
        "authorization",
        "between",
        "bigint",
        "binary",
        "bit",
        "boolean",
        "both",
        "case",
        "cast",
        "char",
        "character",
        "check",
        "coalesce",
        "collate",
        "collation",
        "column",
        "concurrently",
        "constraint",
        "create",
        "cross",
        "current_catalog",
        "current_date",
        "current_role",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "dec",
        "decimal",
        "default",
        "deferrable",
        "desc",
        "distinct",
        "do",
        "else",
        "end",
        "except",
        "exists",
        "extract",
        "false",
        "fetch",
        "float",
        "for",
        "foreign",
        "freeze",
        "from",
        "full",
        "grant",
        "greatest",
        "group",
        "grouping",
        "having",
        "ilike",
        "in",
        "initially",
        "inner",
        "inout",
        "int",
        "integer",
        "intersect",
        "interval",
        "into",
        "is",
        "isnull",
        "join",
        "lateral",
        "leading",
        "least",
        "left",
        "like",
        "limit",
        "localtime",
        "localtimestamp",
        "national",
        "natural",
        "nchar",
        "none",
        "normalize",
        "not",
        "notnull",
        "null",
        "nullif",
        "numeric",
        "offset",
        "on",
        "only",
        "or",
        "order",
        "out",
        "outer",
        "overlaps",
        "overlay",
        "placing",
        "position",
        "precision",
        "primary",
        "real",
        "references",
        "returning",
        "right",
        "row",
        "select",
        "session_user",
        "setof",
        "similar",
        "smallint",
        "some",
        "substring",
        "symmetric",
        "table",
        "tablesample",
        "then",
        "time",
        "timestamp",
        "to",
        "trailing",
        "treat",
        "trim",
        "true",
        "union",
        "unique",
        "user",
        "using",
        "values",
        "varchar",
        "variadic",
        "verbose",
        "when",
        "where",
        "window",
        "with",
        "xmlattributes",
        "xmlconcat",
        "xmlelement",
        "xmlexists",
        "xmlforest",
        "xmlnamespaces",
        "xmlparse",
        "xmlpi",
        "xmlroot",
        "xmlserialize",
        "xmltable",
    ]
)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
_TEXT_MAX = 1 << 28  # bytes of one text that is made here


@row_function("pg.lpad.1", ("VARCHAR", "BIGINT", "VARCHAR"), "VARCHAR")
def lpad(text: str, length: int, fill: str) -> str:
    missing = _missing(text, length)
    if missing <= 0 or not fill:
        return text[: max(length, 0)]
    return (fill * (missing // len(fill) + 1))[:missing] + text


@row_function("pg.rpad.1", ("VARCHAR", "BIGINT", "VARCHAR"), "VARCHAR")
def rpad(text: str, length: int, fill: str) -> str:
    missing = _missing(text, length)
    if missing <= 0 or not fill:
        return text[: max(length, 0)]
    return text + (fill * (missing // len(fill) + 1))[:missing]


def _missing(text: str, length: int) -> int:
    if length > _TEXT_MAX:
        raise ValueError("requested length too large")
    return length - len(text)


@row_function("pg.split_part.1", ("VARCHAR", "VARCHAR", "BIGINT"), "VARCHAR")
def split_part(text: str, between: str, number: int) -> str:
    if number == 0:
        raise ValueError("field position must not be zero")
    parts = text.split(between) if between else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if text and 0 <= place < len(parts) else ""


@row_function("pg.translate.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR")
def translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for place, char in enumerate(old):
        table.setdefault(ord(char), new[place] if place < len(new) else None)
    return text.translate(table)


@row_function("pg.reverse.1", ("VARCHAR",), "VARCHAR")
def reverse(text: str) -> str:
    return text[::-1]


@row_function("pg.initcap.1", ("VARCHAR",), "VARCHAR")
def initcap(text: str) -> str:
    found, inside = [], False
    for char in text:
        changed = char.lower() if inside else char.upper()
        found.append(changed if len(changed) == 1 else char)
        inside = char.isalnum()
    return "".join(found)


@row_function("pg.chr.1", ("BIGINT",), "VARCHAR")
def chr_(code: int) -> str:
    if code == 0:
        raise ValueError("null character not permitted")
    if code < 0:
        raise ValueError("character number must be positive")
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"requested character not valid for encoding: {code}")
    return chr(code)


_UNISTR = re.compile(
    r"\\(?:(\\)|([0-9a-fA-F]{4})|\+([0-9a-fA-F]{6})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))", re.DOTALL
)


@row_function("pg.unistr.1", ("VARCHAR",), "VARCHAR")
def unistr(text: str) -> str:
    def char(match: re.Match[str]) -> str:
        if match[1]:
            return "\\"
        digits = match[2] or match[3] or match[4] or match[5]
        if not digits:
            raise ValueError("invalid Unicode escape: write \\XXXX, \\+XXXXXX, \\uXXXX or \\UXXXXXXXX")
        code = int(digits, 16)
        if code == 0 or code > 0x10FFFF:
            raise ValueError("invalid Unicode escape value")
        return chr(code)

    made = _UNISTR.sub(char, text)
    try:
        return made.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("invalid Unicode surrogate pair") from None


@row_function("pg.to_hex.1", ("BIGINT", "INTEGER"), "VARCHAR")
def to_hex(number: int, bits: int) -> str:
    return f"{number & ((1 << bits) - 1):x}"


def quoted_name(name: str) -> str:
    if _PLAIN_NAME.match(name) and name not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


@row_function("pg.quote_ident.1", ("VARCHAR",), "VARCHAR")
def quote_ident(name: str) -> str:
    return quoted_name(name)


def quoted_literal(text: str) -> str:
    made = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return "E" + made if "\\" in text else made


@row_function("pg.quote_literal.1", ("VARCHAR",), "VARCHAR")
def quote_literal(text: str) -> str:
    return quoted_literal(text)


@row_function("pg.quote_nullable.1", ("VARCHAR",), "VARCHAR", takes_nulls=True)
def quote_nullable(text: str | None) -> str:
    return "NULL" if text is None else quoted_literal(text)


@row_function("pg.normalize.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def normalize(text: str, form: str) -> str:
    return unicodedata.normalize(_form(form), text)  # type: ignore[arg-type]


@row_function("pg.is_normalized.1", ("VARCHAR", "VARCHAR"), "BOOLEAN")
def is_normalized(text: str, form: str) -> bool:
    return unicodedata.is_normalized(_form(form), text)  # type: ignore[arg-type]


def _form(form: str) -> str:
    if form.upper() not in ("NFC", "NFD", "NFKC", "NFKD"):
        raise ValueError(f"invalid normalization form: {form}")
    return form.upper()


@row_function("pg.string_to_array.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[]", takes_nulls=True)
def string_to_array(text: str | None, between: str | None, null: str | None) -> list[str | None] | None:
    if text is None:
        return None
    if not text:
        return []
    parts = list(text) if between is None else text.split(between) if between else [text]
    return [None if part == null else part for part in parts]


@row_function("pg.parse_ident.1", ("VARCHAR", "BOOLEAN"), "VARCHAR[]")
def parse_ident(text: str, strict: bool) -> list[str]:
    wrong = f'string is not a valid identifier: "{text}"'
    found: list[str] = []
    at = 0
    space = re.compile(r"\s*")
    while True:
        at = space.match(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == '"':
            part = re.compile(r'"((?:[^"]|"")*)"').match(text, at)
            if part is None or not part[1]:
                raise ValueError(wrong)
            found.append(part[1].replace('""', '"'))
        else:
            part = re.compile(r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*").match(text, at)
            if part is None:
                raise ValueError(wrong)
            found.append("".join(c.lower() if c.isascii() else c for c in part[0]))
        at = space.match(text, part.end()).end()  # type: ignore[union-attr]
        if text[at : at + 1] != ".":
            break
        at += 1
    if at < len(text) and strict:
        raise ValueError(wrong)
    return found


_FORMAT = re.compile(r"%(?:(%)|(?:(\d+)\$)?(-?)(?:(\d+)|\*(?:(\d+)\$)?(?=[^\d]))?(.?))|%\Z", re.DOTALL)


@row_function("pg.format.1", ("VARCHAR", "VARCHAR[]"), "VARCHAR", takes_nulls=True)
def format_(pattern: str | None, given: tuple[str | None, ...]) -> str | None:
    """Its arguments are texts already; width and precision are as in sprintf."""
    if pattern is None:
        return None
    next_ = 0

    def argument(number: int | None) -> str | None:
        nonlocal next_
        if number is not None:
            if number == 0:
                raise ValueError("format specifies argument 0, but arguments are numbered from 1")
            next_ = number
        else:
            next_ += 1
        if next_ > len(given):
            raise ValueError("too few arguments for format()")
        return given[next_ - 1]

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        number, minus, width, width_from, kind = match[2], match[3], match[4], match[5], match[6]
        wide = int(width or 0)
        if "*" in match[0]:
            wide = int(argument(int(width_from) if width_from else None) or 0)
        if not kind:
            raise ValueError("unterminated format() type specifier")
        if kind not in "sIL":
            raise ValueError(f'unrecognized format() type specifier "{kind}"')
        value = argument(int(number) if number else None)
        if kind == "I":
            if value is None:
                raise ValueError("null values cannot be formatted as an SQL identifier")
            text = quoted_name(value)
        elif kind == "L":
            text = "NULL" if value is None else quoted_literal(value)
        else:
            text = value or ""
        if wide < 0:
            minus, wide = "-", -wide
        return text.ljust(wide) if minus else text.rjust(wide)

    return _FORMAT.sub(one, pattern)
