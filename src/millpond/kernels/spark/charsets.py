"""encode() and decode() of Spark: text in the charsets that it knows."""

from __future__ import annotations

import pyarrow as pa

from millpond.kernels.spark.rows import RefusedValue, by_row

_CHARSETS = {
    "UTF-8": "utf-8",
    "US-ASCII": "ascii",
    "ISO-8859-1": "latin-1",
    "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le",
    "UTF-16": "utf-16-be",  # written with a byte order mark in front; text that is read may have another one
    "UTF-32": "utf-32-be",
}
_MARKS = {b"\xfe\xff": "utf-16-be", b"\xff\xfe": "utf-16-le"}


def _codec(charset: str) -> str:
    known = _CHARSETS.get(charset.upper())
    if known is None:
        raise RefusedValue(f"there is no charset {charset!r}: use one of {', '.join(_CHARSETS)}")
    return known


@by_row("spark.encode.1", ("VARCHAR", "VARCHAR"), "BLOB", pa.binary())
def encode(text: str, charset: str) -> bytes:
    """The bytes of a text.

    >>> encode.code(pa.array(["é"]), pa.array(["utf-16"])).to_pylist()
    [b'\\xfe\\xff\\x00\\xe9']
    """
    codec = _codec(charset)
    try:
        made = text.encode(codec)
    except UnicodeEncodeError:
        raise RefusedValue(f"encode: {charset} has no sign for a part of the text {text!r}") from None
    return b"\xfe\xff" + made if charset.upper() == "UTF-16" and text else made


@by_row("spark.decode.1", ("BLOB", "VARCHAR"), "VARCHAR", pa.string())
def decode(data: bytes, charset: str) -> str:
    """The text of bytes, which have to be valid.

    >>> decode.code(pa.array([b"ab"]), pa.array(["US-ASCII"])).to_pylist()
    ['ab']
    """
    codec = _codec(charset)
    if charset.upper() == "UTF-16" and data[:2] in _MARKS:
        codec, data = _MARKS[data[:2]], data[2:]
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        raise RefusedValue(f"decode: the bytes are not valid {charset}") from None
