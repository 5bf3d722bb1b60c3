"""Reads JSON lines and CSV: a line is a row.

Law 9 for text: every line that is not blank becomes a row or an error row.
A block of lines is parsed at once.
If that fails, or gives another number of rows than lines (two objects on a line, an unclosed quote), the
block
is halved until the bad lines are isolated.
All columns are parsed, whichever are needed, so that the views do not affect which rows are bad.

CSV has a header with the column names; an empty value is NULL, a quoted empty value is the empty string.
A value of CSV contains a line end only with the option `multiline`: where a file can be divided is then not
known without reading all of it, so it is one range.
JSON dates are text.
Files may be compressed (.gz, .bz2, .lz4, .zst); a compressed file is read as one range.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json

from millpond.errors import InvalidError
from millpond.sources.csv_records import LINE_BYTES_MAX, CsvMarks, CsvRecord, records, records_of
from millpond.sources.file_format import BadFileError, FileFacts, FileRange, bad_rows, fetching
from millpond.sources.folder import Folder, Found
from millpond.sources.schema_fit import fit

PIECE_BYTES_MIN, PIECE_BYTES_MAX = 1 << 20, 64 << 20  # of a file that is cut
_BLOCK_BYTES = 4 << 20  # parsed at once
_SHOWN_BYTES = 1000  # of such a line in its error row
_SAMPLE_BYTES = 64 << 10
_INFER_BYTES = 1 << 20
_UNCLOSED = "a quoted value is not closed on its line"
_REMEDY = "; multiline = 'true' reads values with line ends"
_PACKED = 5  # the assumed compression ratio
_BOM = b"\xef\xbb\xbf"


class BadLinesError(Exception):
    """Some of the lines do not parse; the text has the first error."""


class Lines(Protocol):
    """How lines become rows."""

    def clean(self, line: bytes) -> bytes:
        """The line without insignificant characters; a blank line becomes empty."""

    def parse(self, data: bytes, lines: int) -> pa.Table:
        """One row for each line, or BadLinesError; `data` ends with a line end."""


@dataclass(frozen=True)
class CsvOptions:
    delimiter: str = ","
    header: bool = True  # the first line has the names of the columns; otherwise they come in their order
    quote: str = '"'
    null: str = ""  # a value without quotes that means NULL
    multiline: bool = False  # values in quotes may contain line ends

    @property
    def marks(self) -> CsvMarks:
        return CsvMarks(self.delimiter, self.quote)


PLAIN_CSV = CsvOptions()


@dataclass(frozen=True)
class TextFormat:
    csv: bool
    options: CsvOptions = PLAIN_CSV
    plain: bool = False  # a line is a text, in one column

    def infer(self, folder: Folder, file: Found) -> pa.Schema:
        if self.plain:
            return pa.schema([("line", pa.string())])
        if self.csv and not self.options.header:
            raise BadFileError("without a header line the columns must be declared")
        with TextReader(folder, file) as text:
            header = _header(text, self.options) if self.csv else None
            sample = text.read(_INFER_BYTES)
        if len(sample) == _INFER_BYTES:
            sample = sample[: sample.rfind(b"\n") + 1] or sample
        sample = sample.removeprefix(_BOM)
        if self.csv and self.options.multiline:
            lines = [record.data for record in records_of(sample, self.options.marks) if not record.problem]
        else:
            lines = [line for line in sample.splitlines() if line.strip()]
        if not lines:
            raise BadFileError("it has no rows from which to infer the column types")
        try:
            return _csv_types(header, lines, self.options) if header is not None else _json_types(lines)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise BadFileError(_reason(error)) from error

    def look(self, folder: Folder, file: Found, schema: pa.Schema) -> FileFacts:
        start = 0
        with TextReader(folder, file) as text:
            if self.csv and file.size and self.options.header:
                header = _header(text, self.options)
                _check_header(header.names, schema)
                start = 0 if text.packed else header.bytes
            sample = text.read(_SAMPLE_BYTES)
        whole = sample.rfind(b"\n") + 1 or len(sample)
        row_bytes = max(1.0, whole / max(1, sample.count(b"\n")) / (_PACKED if text.packed else 1))
        return FileFacts(_etag(file), start, file.size, None, row_bytes)

    def cut(self, folder: Folder, file: Found, facts: FileFacts, first: int, rows: int) -> FileRange:
        row_bytes: float = facts.parts
        packed = _compression(file.path) is not None
        whole = packed or (self.csv and self.options.multiline)
        wanted = max(PIECE_BYTES_MIN, min(PIECE_BYTES_MAX, int(rows * row_bytes)))
        last = facts.end
        if first + wanted < facts.end and not whole:
            last = _next_line(folder, file, first + wanted, facts.end)
        size = last - first
        rows = self.rows_from(facts, first) - self.rows_from(facts, last)
        return FileRange(first, last, rows, size * (_PACKED if packed else 1))

    def rows_from(self, facts: FileFacts, first: int) -> int:
        row_bytes: float = facts.parts
        return math.ceil((facts.end - first) / row_bytes)

    def etag(self, folder: Folder, file: Found) -> str:
        return _etag(file)

    def read(
        self,
        folder: Folder,
        file: Found,
        piece: FileRange,
        schema: pa.Schema,
        columns: Sequence[str],
        texts: Collection[str] = (),
    ) -> Iterator[pa.Table]:
        if piece.first == piece.last:
            return
        with TextReader(folder, file) as text:
            header = _header(text, self.options) if self.csv and self.options.header else None
            parser = self._parser(schema, header)
            start, stop = piece.first, piece.last
            if text.packed:  # one range; offsets count decompressed bytes
                start, stop = 0 if header is None else header.bytes, sys.maxsize
            else:
                text.seek(start)
            if self.csv and self.options.multiline:
                yield from _record_tables(parser, file, records(text, start, self.options.marks), columns)
                return
            done = start
            try:
                for offset, block, length in blocks(text, start, stop):
                    if length:
                        why = f"the line has {length} bytes, and at most {LINE_BYTES_MAX} are read"
                        shown = block.decode("utf-8", "backslashreplace") + "…"
                        yield bad_rows([shown], [f"{file.path}, byte {offset}: {why}"])
                    else:
                        yield from _tables(parser, file, offset, block, columns)
                    done = offset + max(length, len(block))
            except BadFileError as error:
                row = json.dumps({"path": file.path}, ensure_ascii=False)
                yield bad_rows([row], [f"nothing beyond byte {done} can be read: {error}"])

    def _parser(self, schema: pa.Schema, header: CsvHeader | None) -> Lines:
        if self.plain:
            return PlainLines(schema)
        if not self.csv:
            return JsonLines(schema)
        return CsvLines(schema, schema.names if header is None else header.names, self.options)


class TextReader:
    """The decompressed bytes of a file; I/O errors are distinguished from bad content."""

    def __init__(self, folder: Folder, file: Found) -> None:
        self._file = file
        codec = _compression(file.path)
        self.packed = codec is not None
        with fetching(file):
            raw = folder.open(file.path)
            if codec is not None:
                with raw:
                    raw = pa.BufferReader(raw.read())
        unpacked = raw if codec is None else pa.CompressedInputStream(raw, codec)
        self._bytes = io.BufferedReader(unpacked)

    def __enter__(self) -> TextReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._bytes.close()

    def read(self, size: int) -> bytes:
        return self._get(lambda: self._bytes.read(size))

    def line(self) -> bytes:
        return self._get(lambda: self._bytes.readline(LINE_BYTES_MAX))

    def seek(self, place: int) -> None:
        with fetching(self._file):
            self._bytes.seek(place)

    def _get(self, get: Callable[[], bytes]) -> bytes:
        if not self.packed:
            with fetching(self._file):
                return get()
        try:
            return get()
        except OSError as error:  # read from memory, so only the content can be wrong
            raise BadFileError(f"it cannot be unpacked: {_reason(error)}") from error


# -- lines -------------------------------------------------------------------


def blocks(text: TextReader, start: int, stop: int) -> Iterator[tuple[int, bytes, int]]:
    """The bytes from `start` (the current position) to `stop` in blocks of lines: (offset, lines, 0).

    For a line that is too long, the beginning of the line and its length.
    """
    at = offset = start
    waiting: list[bytes] = []  # the beginning of an incomplete line
    line_bytes = 0  # the bytes of that line so far
    while block := text.read(min(_BLOCK_BYTES, stop - at)):
        at += len(block)
        first = block.find(b"\n")
        if first < 0:
            if line_bytes <= LINE_BYTES_MAX:
                waiting.append(block)
            line_bytes += len(block)
            continue
        if line_bytes + first > LINE_BYTES_MAX:
            yield offset, b"".join([*waiting, block[:first]])[:_SHOWN_BYTES], line_bytes + first
            offset += line_bytes + first + 1
            block = block[first + 1 :]
            waiting = []
        end = block.rfind(b"\n") + 1
        data = b"".join([*waiting, block[:end]])
        if data:
            yield offset, data, 0
        offset += len(data)
        waiting, line_bytes = [block[end:]], len(block) - end
    rest = b"".join(waiting)
    if line_bytes > LINE_BYTES_MAX:
        yield offset, rest[:_SHOWN_BYTES], line_bytes
    elif rest:
        yield offset, rest, 0


def _tables(
    parser: Lines, file: Found, offset: int, block: bytes, columns: Sequence[str]
) -> Iterator[pa.Table]:
    good, bad = parse_lines(parser, block.removeprefix(_BOM) if offset == 0 else block)
    for table in good:
        yield table.select(list(columns))
    if bad:
        rows = [line.decode("utf-8", "backslashreplace") for _, line, _ in bad]
        places = [f"{file.path}, byte {offset + at}: {reason}" for at, _, reason in bad]
        yield bad_rows(rows, [text + (_REMEDY if text.endswith(_UNCLOSED) else "") for text in places])


def _record_tables(
    parser: Lines, file: Found, blocks: Iterator[list[CsvRecord]], columns: Sequence[str]
) -> Iterator[pa.Table]:
    done = 0
    try:
        for block in blocks:
            good, bad = parse_records(parser, block)
            for table in good:
                yield table.select(list(columns))
            if bad:
                rows = [record.data.decode("utf-8", "backslashreplace") for record, _ in bad]
                yield bad_rows(rows, [f"{file.path}, byte {record.at}: {why}" for record, why in bad])
            done = block[-1].at + len(block[-1].data) if block else done
    except BadFileError as error:
        row = json.dumps({"path": file.path}, ensure_ascii=False)
        yield bad_rows([row], [f"nothing beyond byte {done} can be read: {error}"])


def parse_records(
    parser: Lines, found: Sequence[CsvRecord]
) -> tuple[list[pa.Table], list[tuple[CsvRecord, str]]]:
    """The rows of records in order, and the bad ones with the reason."""
    complete = [record for record in found if record.problem is None]
    good, bad = halved(parser, [record.data for record in complete])
    wrong = [(record, record.problem) for record in found if record.problem is not None]
    return good, sorted([*wrong, *((complete[n], why) for n, why in bad)], key=lambda one: one[0].at)


def parse_lines(parser: Lines, data: bytes) -> tuple[list[pa.Table], list[tuple[int, bytes, str]]]:
    """The rows of some lines in order, and the bad lines: (offset, line, reason)."""
    whole = data if data.endswith(b"\n") else data + b"\n"
    try:
        return [parser.parse(whole, whole.count(b"\n"))], []
    except BadLinesError:
        pass  # some lines are blank or bad: they are found below
    lines: list[tuple[int, bytes]] = []
    at = 0
    for line in whole.split(b"\n")[:-1]:
        cleaned = parser.clean(line)
        if cleaned:
            lines.append((at, cleaned))
        at += len(line) + 1
    good, bad = halved(parser, [line for _, line in lines])
    return good, [(*lines[index], reason) for index, reason in bad]


def halved(parser: Lines, lines: Sequence[bytes]) -> tuple[list[pa.Table], list[tuple[int, str]]]:
    """The rows of the good lines in order, and the bad lines, found by halving."""
    good: list[pa.Table] = []
    bad: list[tuple[int, str]] = []

    def solve(lo: int, hi: int) -> None:
        if lo == hi:
            return
        try:
            good.append(parser.parse(b"\n".join(lines[lo:hi]) + b"\n", hi - lo))
        except BadLinesError as error:
            if hi - lo == 1:
                bad.append((lo, str(error)))
                return
            middle = (lo + hi) // 2
            solve(lo, middle)
            solve(middle, hi)

    solve(0, len(lines))
    return good, bad


class JsonLines:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        # Arrow reads dates only from numbers of days; people write them as text.
        parsed = [f.with_type(pa.string()) if pa.types.is_date(f.type) else f for f in schema]
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema([f.with_nullable(True) for f in parsed]),
            unexpected_field_behavior="ignore",
        )

    def clean(self, line: bytes) -> bytes:
        return line.strip()

    def parse(self, data: bytes, lines: int) -> pa.Table:
        # Arrow's reader crashes the process if all values are null.
        if data.count(b"\n{") + data.startswith(b"{") != lines:
            raise BadLinesError("not a JSON object")
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        return _parsed(
            lambda: arrow_json.read_json(pa.BufferReader(data), read, self._options), self._schema, lines, 0
        )


class PlainLines:
    """Lines as they are, without their ends; the only column is a text."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def clean(self, line: bytes) -> bytes:
        return line.rstrip(b"\r")

    def parse(self, data: bytes, lines: int) -> pa.Table:
        found = [line.rstrip(b"\r") for line in data.split(b"\n")[:-1]]
        if len(found) != lines or not all(found):
            raise BadLinesError("a blank line")
        try:
            return pa.table([pa.array([line.decode() for line in found], pa.string())], schema=self._schema)
        except UnicodeDecodeError as error:
            raise BadLinesError(str(error)) from error


class CsvLines:
    def __init__(self, schema: pa.Schema, header: Sequence[str], options: CsvOptions = PLAIN_CSV) -> None:
        self._schema = schema
        self._header = list(header)
        self._whole = options.multiline  # each record is complete
        self._parse = arrow_csv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            newlines_in_values=options.multiline,
        )
        self._convert = arrow_csv.ConvertOptions(
            column_types=pa.schema([f.with_nullable(True) for f in schema]),
            include_columns=schema.names,
            null_values=[options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def clean(self, line: bytes) -> bytes:
        return line.rstrip(b"\r")  # spaces are part of a value

    def parse(self, data: bytes, lines: int) -> pa.Table:
        if self._whole:
            return self._rows(data, lines, guards=0)
        # The last line is appended twice: an unclosed quote would include the copy, which is detected.
        last = data[data.rfind(b"\n", 0, len(data) - 1) + 1 :]
        if lines > 1:
            if data.count(b"\r") != data.count(b"\r\n"):  # Arrow would end a row there
                raise BadLinesError("a line end inside a line")
            return self._rows(data + last, lines, guards=1)
        self._rows(data, lines, guards=0)  # finds the error of a single line
        try:
            return self._rows(data + last, lines, guards=1)
        except BadLinesError as error:
            raise BadLinesError(_UNCLOSED) from error

    def _rows(self, data: bytes, lines: int, guards: int) -> pa.Table:
        read = arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._header)
        try:
            return _parsed(
                lambda: arrow_csv.read_csv(
                    pa.BufferReader(data),
                    read_options=read,
                    parse_options=self._parse,
                    convert_options=self._convert,
                ),
                self._schema,
                lines,
                guards,
            )
        except BadLinesError as error:
            named = re.sub(r"In CSV column #(\d+): (Row #\d+: )?", self._name, str(error))
            raise BadLinesError(re.sub(r"CSV parse error: Row #\d+: (.* got \d+).*", r"\1", named)) from error

    def _name(self, found: re.Match[str]) -> str:
        return f"column {self._header[int(found[1])]!r}: "


def _parsed(read: Callable[[], pa.Table], schema: pa.Schema, lines: int, guards: int) -> pa.Table:
    try:
        table = read()
        if table.num_rows != lines + guards:
            raise BadLinesError(f"{table.num_rows - guards} rows on one line")
        table = fit(table.slice(0, lines), schema, schema.names)
        table.validate(full=True)  # Arrow's JSON reader lets text through that is not UTF-8
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise BadLinesError(_reason(error)) from error
    for field in schema:
        if not field.nullable and table.column(field.name).null_count:
            raise BadLinesError(f"column {field.name!r} is NULL")
    return table


def check_types(csv: bool, schema: pa.Schema) -> None:
    """Refuse a schema that text cannot be read as."""
    fields = pa.schema([f.with_nullable(True) for f in schema])
    try:
        if csv:
            CsvLines(fields, [*fields.names, "_"]).parse(b"," * len(fields) + b"\n", 1)
        else:
            JsonLines(fields).parse(b"{}\n", 1)
    except BadLinesError as error:
        raise InvalidError(
            f"{'CSV' if csv else 'JSON'} cannot be read as these columns",
            detail=str(error),
            hint="read the column as text, and convert it in a later step",
        ) from error


# -- headers and types ---------------------------------------------------------


@dataclass(frozen=True)
class CsvHeader:
    names: list[str]
    bytes: int  # where the rows begin


def _header(text: TextReader, options: CsvOptions) -> CsvHeader:
    """The first line of a CSV file; the reader is positioned after it."""
    line = text.line()
    while options.multiline and options.quote and line.count(options.quote.encode()) % 2:
        more = text.line()
        if not more or len(line) > LINE_BYTES_MAX:
            raise BadFileError("the header cannot be read: a quoted name is not closed")
        line += more
    try:
        shown = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadFileError(f"the header is not UTF-8: {error}") from error
    if options.quote:
        try:
            names = next(
                csv.reader([shown], delimiter=options.delimiter, quotechar=options.quote),
                [],
            )
        except csv.Error as error:
            raise BadFileError(f"the header cannot be read: {error}") from error
    else:
        names = shown.split(options.delimiter) if shown else []
    if not names:
        raise BadFileError("it has no header line with the names of the columns")
    return CsvHeader(names, len(line))


def _check_header(names: Sequence[str], schema: pa.Schema) -> None:
    for wanted in schema.names:
        count = list(names).count(wanted)
        if count == 0:
            raise BadFileError(f"column {wanted!r} is missing, columns are {', '.join(names)}")
        if count > 1:
            raise BadFileError(f"column {wanted!r} comes {count} times")


def _csv_types(header: CsvHeader, lines: Sequence[bytes], given: CsvOptions) -> pa.Schema:
    options = arrow_csv.ReadOptions(column_names=header.names, block_size=_INFER_BYTES * 2)
    convert = arrow_csv.ConvertOptions(null_values=[given.null], strings_can_be_null=True)
    parse = arrow_csv.ParseOptions(
        delimiter=given.delimiter, quote_char=given.quote or False, newlines_in_values=given.multiline
    )
    data = pa.BufferReader(b"\n".join(lines) + b"\n")
    return _finest(arrow_csv.read_csv(data, options, parse, convert).schema)


def _json_types(lines: Sequence[bytes]) -> pa.Schema:
    for line in lines:
        if not line.lstrip().startswith(b"{"):
            raise BadFileError("a line is not a JSON object")
    data = b"\n".join(lines) + b"\n"
    options = arrow_json.ReadOptions(block_size=len(data) + 1)
    return _finest(arrow_json.read_json(pa.BufferReader(data), options).schema)


def _finest(schema: pa.Schema) -> pa.Schema:
    """The finest time unit: a sample with full seconds does not mean that all times are."""
    fields = []
    for field in schema:
        if pa.types.is_timestamp(field.type) and field.type.unit == "s":
            field = field.with_type(pa.timestamp("us", field.type.tz))
        fields.append(field)
    return pa.schema(fields)


# -- files -----------------------------------------------------------------------


def _etag(file: Found) -> str:
    return f"{file.size}-{file.mtime_us}"


def _compression(path: str) -> str | None:
    for ending, name in ((".gz", "gzip"), (".bz2", "bz2"), (".lz4", "lz4"), (".zst", "zstd")):
        if path.lower().endswith(ending):
            return name
    return None


def _next_line(folder: Folder, file: Found, at: int, end: int) -> int:
    """The first byte after a line end at or beyond `at`."""
    with fetching(file), folder.open(file.path) as handle:
        while at < end:
            block = handle.read_at(min(_SAMPLE_BYTES, end - at), at)
            if not block:
                break
            found = block.find(b"\n")
            if found >= 0:
                return int(at + found + 1)
            at += len(block)
    return min(at, end)


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text.removeprefix("JSON parse error: ").removesuffix(" in row 0") or type(error).__name__
