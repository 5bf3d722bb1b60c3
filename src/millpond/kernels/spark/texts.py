"""Functions of texts that DuckDB does not have."""

from __future__ import annotations

import hashlib
import re
import zlib
from urllib.parse import quote_plus, unquote_plus, urlsplit

import pyarrow as pa

from millpond.kernels.spark.java_format import formatted
from millpond.kernels.spark.patterns import compiled
from millpond.kernels.spark.rows import RefusedValue, by_row

_TEXT = pa.string()


@by_row("spark.substring_index.1", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR", _TEXT)
def substring_index(text: str, separator: str, count: int) -> str:
    if count == 0 or not separator:
        return ""
    if count > 0:
        at = -1
        for _ in range(count):
            at = text.find(separator, at + 1)
            if at < 0:
                return text
        return text[:at]
    at = len(text) + 1 - len(separator)
    for _ in range(-count):
        at = text.rfind(separator, 0, max(0, at + len(separator) - 1)) if at > 0 else -1
        if at < 0:
            return text
    return text[at + len(separator) :]


@by_row("spark.initcap.1", ("VARCHAR",), "VARCHAR", _TEXT)
def initcap(text: str) -> str:
    return re.sub(r"[^ ]+", lambda word: word[0][0].upper() + word[0][1:].lower(), text)


@by_row("spark.soundex.1", ("VARCHAR",), "VARCHAR", _TEXT)
def soundex(text: str) -> str:
    if not text or not ("A" <= text[0].upper() <= "Z" and text[0].isascii()):
        return text
    codes = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))
    found, last = text[0].upper(), codes[text[0].upper()]
    for sign in text[1:].upper():
        code = codes.get(sign)
        if code is None:
            last = "0"
            continue
        if code == "7":  # H and W are as if they were not there
            continue
        if code != "0" and code != last:
            found += code
            if len(found) == 4:
                break
        last = code
    return found.ljust(4, "0")


@by_row("spark.mask.1", ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR", _TEXT)
def mask(text: str, upper: str, lower: str, digit: str, other: str) -> str:
    """Each character replaced by that of its kind; an empty text keeps the characters of a kind."""
    return "".join(
        (upper if c.isupper() else lower if c.islower() else digit if c.isdigit() else other) or c
        for c in text
    )


@by_row("spark.sha2.1", ("BLOB", "INTEGER"), "VARCHAR", _TEXT)
def sha2(data: bytes, bits: int) -> str | None:
    code = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if code is None else hashlib.new(code, data).hexdigest()


@by_row("spark.crc32.1", ("BLOB",), "BIGINT", pa.int64())
def crc32(data: bytes) -> int:
    return zlib.crc32(data)


@by_row("spark.luhn_check.1", ("VARCHAR",), "BOOLEAN", pa.bool_())
def luhn_check(text: str) -> bool:
    if not re.fullmatch("[0-9]+", text):
        return False
    doubled = (int(c) * (1 + n % 2) for n, c in enumerate(reversed(text)))
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


@by_row("spark.url_encode.1", ("VARCHAR",), "VARCHAR", _TEXT)
def url_encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


@by_row("spark.url_decode.1", ("VARCHAR", "BOOLEAN"), "VARCHAR", _TEXT)
def url_decode(text: str, lenient: bool) -> str | None:
    if re.search(r"%(?![0-9a-fA-F]{2})", text):
        if lenient:
            return None
        raise RefusedValue(f"{text!r} is not an encoded URL")
    return unquote_plus(text)


@by_row("spark.format_string.1", ("VARCHAR", "VARCHAR[]"), "VARCHAR", _TEXT)
def format_string(pattern: str, given: tuple[str | None, ...] | list[str | None]) -> str:
    return formatted(pattern, list(given))


@by_row("spark.unhex.1", ("VARCHAR",), "BLOB", pa.binary())
def unhex(text: str) -> bytes:
    digits = text if len(text) % 2 == 0 else "0" + text
    if not re.fullmatch("[0-9a-fA-F]*", digits):
        raise RefusedValue(f"{text!r} has other signs than hexadecimal digits")
    return bytes.fromhex(digits)


@by_row(
    "spark.str_to_map.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[][]", pa.list_(pa.list_(pa.string()))
)
def str_to_map(text: str, pairs: str, parts: str) -> list[list[str | None]]:
    found: dict[str, str | None] = {}
    for pair in compiled(pairs).split(text):
        key, *rest = compiled(parts).split(pair, 1)
        if key in found:
            raise RefusedValue(f"the key {key!r} occurs twice in a map")
        found[key] = rest[0] if rest else None
    return [list(found), list(found.values())]


@by_row("spark.levenshtein.1", ("VARCHAR", "VARCHAR"), "INTEGER", pa.int32())
def levenshtein(a: str, b: str) -> int:
    """The least number of characters to insert, delete or replace."""
    row = list(range(len(b) + 1))
    for n, sign in enumerate(a, 1):
        before, row[0] = row[0], n
        for m, other in enumerate(b, 1):
            before, row[m] = row[m], min(row[m] + 1, row[m - 1] + 1, before + (sign != other))
    return row[-1]


@by_row("spark.join.1", ("VARCHAR[]", "VARCHAR"), "VARCHAR", _TEXT)
def join(parts: list[str | None], between: str) -> str:
    return between.join(part for part in parts if part is not None)


@by_row("spark.quote.1", ("VARCHAR",), "VARCHAR", _TEXT)
def quote(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


@by_row("spark.parse_url.1", ("VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN"), "VARCHAR", _TEXT)
def parse_url(text: str, part: str, key: str, strict: bool) -> str | None:
    """A part of a URL; a text that is not a URI raises an error or gives NULL."""
    if re.search(r"[\s<>\"{}|\\^`]", text) or (
        ":" in text and not re.match(r"[A-Za-z][\w+.-]*:|[/?#]", text)
    ):
        if strict:
            raise RefusedValue(f"the url is invalid: {text}")
        return None
    if re.match(r"[A-Za-z][\w+.-]*:[^/]", text):  # `mailto:a@b.c` has no parts
        return text.partition(":")[0] if part == "PROTOCOL" else None
    found = urlsplit(text)
    query = found.query if "?" in text else None
    if part == "QUERY" and key:
        named = re.search(rf"(?:^|&){re.escape(key)}=([^&]*)", query or "")
        return None if named is None else named[1]
    user = found.netloc.rpartition("@")[0] if "@" in found.netloc else None
    parts = {
        "HOST": found.netloc.rpartition("@")[2].rpartition(":")[0]
        if re.search(r":\d*$", found.netloc)
        else found.netloc.rpartition("@")[2],
        "PATH": found.path,
        "QUERY": query,
        "REF": found.fragment if "#" in text else None,
        "PROTOCOL": text.partition(":")[0] if found.scheme else None,
        "FILE": found.path + ("" if query is None else f"?{query}"),
        "AUTHORITY": found.netloc or None,
        "USERINFO": user,
    }
    made = parts.get(part)
    return None if part == "HOST" and not made else made


@by_row("spark.instr.1", ("VARCHAR", "VARCHAR", "INTEGER", "INTEGER"), "INTEGER", pa.int32())
def instr(text: str, part: str, start: int, occurrence: int) -> int:
    """The place of an occurrence of a part, from a start; a negative start counts and searches backwards."""
    if occurrence < 1:
        raise RefusedValue("instr() counts occurrences from 1")
    if start == 0:
        return 0
    if not part:
        return 1
    at = start - 2 if start > 0 else len(text) + start + 1
    for _ in range(occurrence):
        at = (
            text.find(part, at + 1)
            if start > 0
            else (text.rfind(part, 0, at - 1 + len(part)) if at > 0 else -1)
        )
        if at < 0:
            return 0
    return at + 1
