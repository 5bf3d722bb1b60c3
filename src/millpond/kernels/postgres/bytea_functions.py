"""PostgreSQL's functions over bytea, and between bytea and text."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

from millpond.kernels.postgres.rows import row_function

_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_ENCODINGS = {
    "utf8": "utf-8",
    "unicode": "utf-8",
    "latin1": "latin-1",
    "iso88591": "latin-1",
    "sqlascii": "ascii",
    "win1252": "cp1252",
    "win1251": "cp1251",
    "latin2": "iso8859-2",
    "latin9": "iso8859-15",
    "koi8r": "koi8-r",
    "eucjp": "euc-jp",
    "sjis": "shift-jis",
    "big5": "big5",
    "gbk": "gbk",
    "euckr": "euc-kr",
}


@row_function("pg.bit_count.1", ("BLOB",), "BIGINT")
def bit_count(data: bytes) -> int:
    return int.from_bytes(data).bit_count()


@row_function("pg.bytea_like.1", ("BLOB", "BLOB", "BLOB"), "BOOLEAN")
def bytea_like(data: bytes, pattern: bytes, escape: bytes) -> bool:
    """LIKE byte by byte; the escape takes the meaning from the next one."""
    if len(escape) > 1:
        raise ValueError("invalid escape string")
    found, at = b"", 0
    while at < len(pattern):
        one = pattern[at : at + 1]
        if one == escape:
            at += 1
            one = pattern[at : at + 1]
            if not one:
                raise ValueError("LIKE pattern must not end with escape character")
            found += re.escape(one)
        else:
            found += _LIKE.get(one) or re.escape(one)
        at += 1
    return re.fullmatch(found, data, re.DOTALL) is not None


_LIKE = {b"%": b".*", b"_": b"."}


@row_function("pg.bytea_joined.1", ("BLOB[]", "BLOB[]"), "BLOB")
def bytea_joined(values: tuple[bytes | None, ...], separators: tuple[bytes | None, ...]) -> bytes | None:
    """What string_agg makes: before each value but the first stands its own separator."""
    pairs = [(v, s or b"") for v, s in zip(values, separators, strict=True) if v is not None]
    return b"".join(v if n == 0 else s + v for n, (v, s) in enumerate(pairs)) if pairs else None


@row_function("pg.bytea_substr.1", ("BLOB", "BIGINT", "BIGINT"), "BLOB")
def bytea_substr(data: bytes, start: int, length: int) -> bytes:
    if length < 0:
        raise ValueError("negative substring length not allowed")
    return data[max(start - 1, 0) : max(start + length - 1, 0)]


@row_function("pg.bytea_overlay.1", ("BLOB", "BLOB", "BIGINT", "BIGINT"), "BLOB")
def bytea_overlay(data: bytes, new: bytes, start: int, length: int) -> bytes:
    if start <= 0:
        raise ValueError("negative substring length not allowed")
    return data[: start - 1] + new + data[max(start + length - 1, 0) :]


@row_function("pg.bytea_position.1", ("BLOB", "BLOB"), "INTEGER")
def bytea_position(data: bytes, part: bytes) -> int:
    return data.find(part) + 1


@row_function("pg.bytea_trim.1", ("BLOB", "BLOB", "VARCHAR"), "BLOB")
def bytea_trim(data: bytes, chars: bytes, side: str) -> bytes:
    if not chars:
        return data
    return {"both": data.strip, "left": data.lstrip, "right": data.rstrip}[side](chars)


@row_function("pg.bytea_md5.1", ("BLOB",), "VARCHAR")
def bytea_md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@row_function("pg.sha.1", ("BLOB", "VARCHAR"), "BLOB")
def sha(data: bytes, kind: str) -> bytes:
    return hashlib.new(kind, data).digest()


@row_function("pg.get_byte.1", ("BLOB", "BIGINT"), "INTEGER")
def get_byte(data: bytes, place: int) -> int:
    return data[_inside(place, len(data))]


@row_function("pg.set_byte.1", ("BLOB", "BIGINT", "BIGINT"), "BLOB")
def set_byte(data: bytes, place: int, value: int) -> bytes:
    at = _inside(place, len(data))
    return data[:at] + bytes([value & 255]) + data[at + 1 :]


@row_function("pg.get_bit.1", ("BLOB", "BIGINT"), "INTEGER")
def get_bit(data: bytes, place: int) -> int:
    at = _inside(place, 8 * len(data))
    return data[at // 8] >> (at % 8) & 1


@row_function("pg.set_bit.1", ("BLOB", "BIGINT", "BIGINT"), "BLOB")
def set_bit(data: bytes, place: int, value: int) -> bytes:
    at = _inside(place, 8 * len(data))
    if value not in (0, 1):
        raise ValueError("new bit must be 0 or 1")
    byte = data[at // 8] & ~(1 << (at % 8)) | value << (at % 8)
    return data[: at // 8] + bytes([byte]) + data[at // 8 + 1 :]


def _inside(place: int, count: int) -> int:
    if not 0 <= place < count:
        raise ValueError(f"index {place} out of valid range, 0..{count - 1}")
    return place


@row_function("pg.encode.1", ("BLOB", "VARCHAR"), "VARCHAR")
def encode(data: bytes, form: str) -> str:
    kind = form.lower()
    if kind == "hex":
        return data.hex()
    if kind == "base64":
        text = base64.b64encode(data).decode()
        return "\n".join(text[at : at + 76] for at in range(0, len(text), 76))
    if kind == "escape":
        return "".join("\\\\" if b == 92 else f"\\{b:03o}" if b == 0 or b > 127 else chr(b) for b in data)
    raise ValueError(f'unrecognized encoding: "{form}"')


@row_function("pg.decode.1", ("VARCHAR", "VARCHAR"), "BLOB")
def decode(text: str, form: str) -> bytes:
    kind = form.lower()
    if kind == "hex":
        return _from_hex(text)
    if kind == "base64":
        return _from_base64(text)
    if kind == "escape":
        return _from_escape(text)
    raise ValueError(f'unrecognized encoding: "{form}"')


def _from_hex(text: str) -> bytes:
    digits = re.sub(r"[ \t\n\r]", "", text)
    for char in digits:
        if char not in "0123456789abcdefABCDEF":
            raise ValueError(f'invalid hexadecimal digit: "{char}"')
    if len(digits) % 2:
        raise ValueError("invalid hexadecimal data: odd number of digits")
    return bytes.fromhex(digits)


def _from_base64(text: str) -> bytes:
    plain = re.sub(r"[ \t\n\r]", "", text)
    for char in plain:
        if ord(char) not in _BASE64:
            raise ValueError(f'invalid symbol "{char}" found while decoding base64 sequence')
    try:
        return base64.b64decode(plain, validate=True)
    except binascii.Error:
        raise ValueError("invalid base64 end sequence") from None


def _from_escape(text: str) -> bytes:
    def byte(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes([int(match[1], 8)])
        if match[2]:
            return b"\\"
        raise ValueError("invalid input syntax for type bytea")

    return re.sub(rb"\\(?:([0-3][0-7][0-7])|(\\))?", byte, text.encode())


@row_function("pg.convert_from.1", ("BLOB", "VARCHAR"), "VARCHAR")
def convert_from(data: bytes, encoding: str) -> str:
    try:
        found = data.decode(_encoding(encoding))
    except UnicodeDecodeError as error:
        raise ValueError(f'invalid byte sequence for encoding "{encoding}": {error.reason}') from None
    if "\0" in found:
        raise ValueError(f'invalid byte sequence for encoding "{encoding}": 0x00')
    return found


@row_function("pg.convert_to.1", ("VARCHAR", "VARCHAR"), "BLOB")
def convert_to(text: str, encoding: str) -> bytes:
    try:
        return text.encode(_encoding(encoding))
    except UnicodeEncodeError as error:
        raise ValueError(f'character has no equivalent in encoding "{encoding}"') from error


def _encoding(name: str) -> str:
    found = _ENCODINGS.get(re.sub(r"[^a-z0-9]", "", name.lower()))
    if found is None:
        raise ValueError(f'invalid encoding name "{name}"')
    return found


@row_function("pg.bytea_in.1", ("VARCHAR",), "BLOB")
def bytea_in(text: str) -> bytes:
    r"""The bytes of a literal: `\x1234` or with escapes, `a\000b`."""
    return _from_hex(text[2:]) if text[:2] == "\\x" else _from_escape(text)
