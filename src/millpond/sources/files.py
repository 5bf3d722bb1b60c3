"""Reads every file that appears in a folder, once.

Law: a file is admitted completely, in ranges, once (laws 1 and 9).
The source's own table has one row per file that was read, committed with the epoch that read it; a file that
was read in part is in the position.
Files are read in the order of (time, name); a file that appears later with an older time is still new.
Each file is a partition with its own watermark, which disappears when the file has been read to its end;
files that are listed and not read yet hold watermarks back (docs/decisions/0030-watermarks-by-partition.md):
those of Parquet at the least time that their statistics state.
A split names the size and etag of its file, and reading it again checks both, so a replay gives the same rows
or an error, never other rows.

A file that cannot be read (no footer, other columns) becomes an error row and is tried again when it changes.
A file that changes after it was read becomes an error row too: its rows are already in the views, and it is
not
read again.
Put complete files into the folder, by renaming them.

The cost of a poll follows the number of new files: with 100,000 files that were read, it is one stat of a
local folder (`local_listing.py`), and one request to S3, for names after the last one (`remote_listing.py`).
A file that is rewritten in place, or has an older name in S3, is then noticed within a minute.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments.call_errors import checked, need_text
from millpond.arguments.schemas import schema_of
from millpond.errors import DataError, InternalError, InvalidError, UnavailableError
from millpond.masking import masked
from millpond.operators.source_traits import KeepsHistory, ReadsEncoded, RereadsColumns, StoredWithSchema
from millpond.plan.backfill import FROM_NOW
from millpond.secret_references import check_references, resolved_address
from millpond.sources import schema_fit, text_format
from millpond.sources.avro_format import AvroFormat
from millpond.sources.file_format import ERROR, BadFileError, FileFacts, FileFormat, FileRange
from millpond.sources.folder import Folder, Found, open_folder
from millpond.sources.orc_format import OrcFormat
from millpond.sources.parquet_format import ParquetFormat
from millpond.sources.partition_folders import check_partitions, folder_values, with_folder_values
from millpond.sources.source import Advance, Poll, Split
from millpond.sources.text_format import PLAIN_CSV, CsvOptions, TextFormat
from millpond.state.tables.table_spec import TableSpec

RANGES_PER_POLL = 16  # approximate; so that all tasks get work
FILES_PER_POLL = 1_000  # the maximum that a poll opens: many tiny files must not make it endless
# The maximum of files behind those that a poll offers whose statistics it reads, for their least times.
FILES_AHEAD_LOCAL, FILES_AHEAD_REMOTE = 1_000, 50
_FACTS_MAX = 20_000  # the maximum number in memory

SEEN = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("mtime_us", pa.int64()),
        ("etag", pa.string()),  # of the content that was read; NULL for a file that was not read
        ("rows", pa.int64()),  # NULL if the format does not know
        ("status", pa.string()),  # read, rejected, changed (after it was read)
    ]
)
_FORMATS: dict[str, FileFormat] = {
    "parquet": ParquetFormat(),
    "json": TextFormat(csv=False),
    "csv": TextFormat(csv=True),
    "text": TextFormat(csv=False, plain=True),
    "orc": OrcFormat(),
    "avro": AvroFormat(),
}


@checked
@dataclass(frozen=True)
class FileSource(KeepsHistory, ReadsEncoded, RereadsColumns, StoredWithSchema):
    """Rows of all files of a folder and the folders in it; files named `_*`, `.*` and `*.tmp` are not seen.

    `path` is a folder or an address that Arrow can open (``s3://...``); `pattern` chooses files, as in
    ``"*.parquet"`` or ``"orders/*"``.  `schema` is Arrow's, a dict of types or a dataclass; without it the
    columns are those of the first file.  A file must have all columns, in these types or narrower ones;
    others it has are left out.  Columns in `partition_by` are in the names of folders, as in
    ``dt=2024-05-01``.

    >>> import tempfile, pyarrow.parquet
    >>> folder = tempfile.mkdtemp()
    >>> pyarrow.parquet.write_table(pa.table({"k": [1, 2]}), f"{folder}/a.parquet")
    >>> source = FileSource(folder)
    >>> [(s.what["path"], s.rows) for s in source.poll(None, None, 1000).splits]
    [('a.parquet', 2)]
    """

    path: str | os.PathLike[str]  # kept as absolute text
    format: Literal["parquet", "json", "csv", "text", "orc", "avro"] = "parquet"
    schema: pa.Schema = None
    pattern: str | None = None
    bounded: bool = False  # no file will be added: when all are read, the source has ended
    csv: CsvOptions = PLAIN_CSV
    partition_by: tuple[str, ...] = ()
    # What this process knows about versions of files.
    _facts: dict[Found, FileFacts] = field(
        default_factory=dict, compare=False, repr=False, metadata={"durable": False}
    )
    _touched: set[Found] = field(
        default_factory=set, compare=False, repr=False, metadata={"durable": False}
    )  # read before, with another time and the same content

    _memory: _Memory = field(
        default_factory=lambda: _Memory(), compare=False, repr=False, metadata={"durable": False}
    )

    append_only: ClassVar[bool] = True

    def __repr__(self) -> str:
        shown = (masked(str(self.path)), self.format, self.schema, self.pattern)
        return "FileSource(path={!r}, format={!r}, schema={!r}, pattern={!r})".format(*shown)

    def __post_init__(self) -> None:
        if self.format not in _FORMATS:
            raise InvalidError(f"no file format named {self.format!r}", hint=f"one of {', '.join(_FORMATS)}")
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise InvalidError(
                "a FileSource needs a folder", detail=f"got {self.path!r}", hint='FileSource("orders/")'
            )
        if self.pattern is not None:
            need_text("pattern", self.pattern, '"*.parquet", for example')
        path = os.fspath(self.path)
        check_references(path)
        if "://" not in path and Path(path).expanduser().is_file():
            folder, name = os.path.split(path)
            raise InvalidError(
                f"{path!r} is a file, and a FileSource follows a folder",
                hint=f"FileSource({folder or '.'!r}, pattern={name!r})",
            )
        object.__setattr__(self, "path", path if "://" in path else str(Path(path).expanduser().absolute()))
        names = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by)
        object.__setattr__(self, "partition_by", names)
        if self.schema is None:
            self._folder.check()
            object.__setattr__(self, "schema", self._inferred())
        else:
            object.__setattr__(self, "schema", schema_fit.declared(schema_of(self.schema)))
        check_partitions(self.partition_by, self.schema)
        if self.format in ("json", "csv"):
            text_format.check_types(self.format == "csv", self._inside)
        if self.format == "text" and [f.type for f in self._inside] != [pa.string()]:
            raise InvalidError(
                "lines of text are one column of text",
                detail=f"columns are {', '.join(f'{f.name} {f.type}' for f in self._inside)}",
            )

    @property
    def reads_again(self) -> bool:
        """True for Parquet, which stores columns separately: reading a range again for more is cheap."""
        return self.format == "parquet"

    def table(self, step: str) -> TableSpec:
        return TableSpec(f"{step}/seen", SEEN, key=("path",))

    # -- in the driver --------------------------------------------------------

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        listing = self._folder.list(self.pattern)
        offer = _Offer(self, max_rows)
        partial = _partial(position, str(self.path))
        if partial is not None:
            self._go_on(offer, partial)
        fresh, changed = self._memory.sort_out(listing, seen)
        if partial is not None:
            fresh = [f for f in fresh if f.path != partial["path"]]
            changed = [(f, before) for f, before in changed if f.path != partial["path"]]
        left: list[Found] = []
        for number, file in enumerate(fresh):
            if offer.full:
                left = fresh[number:]
                break
            offer.take(file)
        for file, before in changed:
            if offer.looked >= FILES_PER_POLL:
                break
            offer.notice_change(file, before)
        return offer.poll(left, _Generation.of(position, partial, fresh))

    def _go_on(self, offer: _Offer, partial: dict[str, Any]) -> None:
        """The remaining ranges of the file that earlier epochs read partially."""
        file = self._folder.find(partial["path"])
        if file is None:
            raise _vanished(str(self.path), partial["path"])
        try:
            facts = self._look(file)
        except FileNotFoundError as error:
            raise _vanished(str(self.path), partial["path"]) from error
        except BadFileError as error:
            raise _changed(str(self.path), partial, file, str(error)) from error
        if (file.size, facts.etag) != (partial["size"], partial["etag"]):
            raise _changed(str(self.path), partial, file, facts.etag)
        offer.add(file, facts, partial["next"])

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        partial = _partial(position, str(self.path))
        files = 0 if position is None else int(position["files"])
        done: list[dict[str, Any]] = []
        for split in admitted:
            what = split.what
            if partial is not None and (what["path"], what["first"]) != (partial["path"], partial["next"]):
                raise InternalError(
                    "a file was left before its end",
                    detail=f"{partial['path']!r} at {partial['next']}, "
                    f"then {what['path']!r} at {what['first']}",
                )
            identity = {name: what[name] for name in ("path", "size", "mtime_us", "etag")}
            if what["last"] < what["end"]:
                partial = {**identity, "next": what["last"]}
            else:
                partial = None
                files += 1
                done.append({**identity, "rows": what["rows"], "status": "read"})
        done += [json.loads(what) for what, _ in rejects]
        seen = pa.Table.from_pylist(done, schema=SEEN) if done else None
        until = admitted[-1].what.get("until") if admitted else (position or {}).get("until")
        held = {} if until is None else {"until": until}
        return Advance({"files": files, "partial": partial, **held}, seen)

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        """All ranges of the files that were read, the oldest first; each must be unchanged."""
        read = [] if seen is None else [f for f in seen.to_pylist() if f["etag"] is not None]
        for then in sorted(read, key=lambda f: (f["mtime_us"], f["path"])):
            yield from self._ranges_again(then, None, rows)
        partial = _partial(position, str(self.path))
        if partial is not None:
            yield from self._ranges_again(partial, partial["next"], rows)

    def _ranges_again(self, then: dict[str, Any], end: int | None, rows: int) -> Iterator[Split]:
        """The ranges of a file that was read, up to a position or completely."""
        path = then["path"]
        file = self._folder.find(path)
        try:
            facts = None if file is None else self._look(file)
        except (FileNotFoundError, BadFileError):
            facts = None
        if file is None or facts is None or facts.etag != then["etag"]:
            raise InvalidError(
                f"file {path!r} was read, and is {'gone' if file is None else 'another'} now",
                detail=f"its etag was {then['etag']} in {str(self.path)!r}; its rows cannot be read again",
                hint=f"put the file back as it was, build on a view that holds the rows, or {FROM_NOW}",
            )
        first, end = facts.start, facts.end if end is None else end
        while first < end:
            piece = self._format.cut(self._folder, file, facts, first, max(1, rows))
            last = min(piece.last, end)
            what = {**_identity(file, facts), "first": first, "last": last, "end": facts.end}
            yield Split({**what, "rows": facts.rows}, piece.rows, piece.bytes, partition=path)
            first = last

    # -- in a task ------------------------------------------------------------

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        return self.read_encoded(split, columns, ())

    def read_encoded(
        self, split: Split, columns: Sequence[str], texts: Collection[str]
    ) -> Iterator[pa.Table]:
        what = split.what
        piece = FileRange(what["first"], what["last"], split.rows, split.bytes)
        try:
            file = self._same(what)
            values = folder_values(file.path, self.partition_by, self.schema)
            inside = [name for name in columns if name not in values]
            for table in self._format.read(self._folder, file, piece, self._inside, inside, texts):
                is_bad = not values or ERROR in table.column_names
                yield table if is_bad else with_folder_values(table, values, columns)
            if self._folder.find(file.path) != file:
                self._same(what)  # its content must not change while it is read
        except FileNotFoundError as error:
            raise _gone(str(self.path), what["path"]) from error

    def _same(self, what: Any) -> Found:
        """The file of a split, if it is still the one that was admitted."""
        file = self._folder.find(what["path"])
        if file is None:
            raise _gone(str(self.path), what["path"])
        try:
            etag = self._format.etag(self._folder, file)
        except BadFileError as error:
            raise _another(str(self.path), what, file, str(error)) from error
        if (file.size, etag) != (what["size"], what["etag"]):
            raise _another(str(self.path), what, file, etag)
        return file

    # -- inside -----------------------------------------------------------------

    @property
    def _folder(self) -> Folder:
        return open_folder(resolved_address(str(self.path)))

    @property
    def _format(self) -> FileFormat:
        return TextFormat(csv=True, options=self.csv) if self.format == "csv" else _FORMATS[self.format]

    def _look(self, file: Found) -> FileFacts:
        facts = self._facts.get(file)
        if facts is None:
            if len(self._facts) >= _FACTS_MAX:
                self._facts.clear()
            folder_values(file.path, self.partition_by, self.schema)
            facts = self._facts[file] = self._format.look(self._folder, file, self._inside)
        return facts

    @property
    def _inside(self) -> pa.Schema:
        """The columns that are in files."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def _inferred(self) -> pa.Schema:
        """The columns of the first file that can be read."""
        reason = "there is no file in it"
        for file in self._folder.list(self.pattern):
            if not file.legible or file.problem is not None:
                continue
            try:
                found = self._format.infer(self._folder, file)
                folders = [pa.field(name, pa.string()) for name in self.partition_by]
                inside = [field for field in found if field.name not in self.partition_by]
                return schema_fit.inferred(pa.schema([*inside, *folders]))
            except FileNotFoundError:
                continue
            except BadFileError as error:
                reason = f"{file.path}: {error}"
        raise InvalidError(
            f"the columns of folder {self.path!r} are unknown",
            detail=reason,
            hint="put a first file into it, or pass schema=pa.schema([...])",
        )


Earliest = Mapping[str, int] | None  # by column: the least time in some files; None if they have no rows


def _least(one: Earliest, other: Earliest) -> Earliest:
    """
    >>> _least({"ts": 5, "at": 1}, {"ts": 3}), _least(None, {"ts": 3}), _least({}, {"ts": 3})
    ({'ts': 3}, {'ts': 3}, {})
    """
    if one is None or other is None:
        return other if one is None else one
    return {name: min(one[name], other[name]) for name in one if name in other}


class _Offer:
    """Collects the splits of one poll."""

    def __init__(self, source: FileSource, max_rows: int) -> None:
        self._source = source
        self._max_rows = max_rows
        self._piece_rows = max(1, max_rows // RANGES_PER_POLL)
        self._splits: list[Split] = []
        self._rejects: list[tuple[str, str]] = []
        self._rows = 0
        self._beyond = 0  # remaining rows of files that are offered in part
        self._files = 0
        self._earliest: dict[str, Earliest] = {}  # by path
        self.looked = 0

    @property
    def full(self) -> bool:
        return self._rows >= self._max_rows or self.looked >= FILES_PER_POLL

    def take(self, listed: Found) -> None:
        """Offer a new file, or refuse it."""
        self.looked += 1
        if not listed.legible:
            self._reject(listed, "the name is not valid UTF-8", "rejected")
            return
        if listed.problem is not None:
            self._reject(listed, f"the file cannot be opened: {listed.problem}", "rejected")
            return
        file = self._source._folder.now(listed)
        if file is None:
            return
        try:
            facts = self._source._look(file)
        except FileNotFoundError:
            return  # it was removed before it was admitted
        except BadFileError as error:
            self._reject(file, str(error), "rejected")
            return
        self.add(file, facts, facts.start)

    def add(self, file: Found, facts: FileFacts, first: int) -> None:
        """Offer a file from a unit on, in ranges, until the poll is full."""
        source = self._source
        self._files += 1
        self._earliest[file.path] = facts.earliest if facts.rows != 0 else None
        while True:
            piece = source._format.cut(source._folder, file, facts, first, self._piece_rows)
            what = {
                "path": file.path,
                "size": file.size,
                "mtime_us": file.mtime_us,
                "etag": facts.etag,
                "first": piece.first,
                "last": piece.last,
                "end": facts.end,
                "rows": facts.rows,
            }
            ends = piece.last >= facts.end
            self._splits.append(Split(what, piece.rows, piece.bytes, partition=file.path, ends=ends))
            self._rows += piece.rows
            first = piece.last
            if first >= facts.end:
                return
            if self._rows >= self._max_rows:
                self._beyond += source._format.rows_from(facts, first)
                return

    def notice_change(self, file: Found, etags: set[str]) -> None:
        """Report once that a file changed after it was read, unless its content is the same."""
        source = self._source
        if file in source._touched:
            return
        self.looked += 1
        try:
            etag = source._format.etag(source._folder, file)
        except FileNotFoundError:
            return
        except BadFileError as error:
            etag = str(error)
        if etag in etags:
            source._touched.add(file)
            return
        read = min(etags)
        reason = f"the file changed after it was read (its etag was {read}, now {etag}) and is not read again"
        self._reject(file, reason, "changed", read)

    def poll(self, left: Sequence[Found], generation: _Generation) -> Poll:
        average = self._rows / self._files if self._files else 0
        backlog = self._beyond + round(len(left) * average)
        splits: list[Split] = []
        later = left[0].mtime_us if left else None  # the oldest time of a file behind the current one
        ahead = self._ahead(left, generation)
        for split in reversed(self._splits):
            mtime_us, until = split.what["mtime_us"], generation.until(split.what["mtime_us"])
            if splits and splits[-1].partition != split.partition:
                later = splits[-1].what["mtime_us"]
                ahead = _least(self._earliest[splits[-1].partition], ahead) if later <= until else None
            what = {**split.what, "until": until} if mtime_us < until else split.what
            more = later is not None and later <= until
            splits.append(replace(split, what=what, more=more, more_from=ahead or None if more else None))
        finished = self._source.bounded and not left and not self._beyond
        return Poll(tuple(reversed(splits)), tuple(self._rejects), backlog, finished=finished)

    def _ahead(self, left: Sequence[Found], generation: _Generation) -> Earliest:
        """The least times of files that hold watermarks back and are not offered yet."""
        if not any(self._earliest.values()):
            return {}  # these files state no times, so others will not either
        until = generation.until(self._splits[-1].what["mtime_us"])
        holding = [file for file in left if file.mtime_us <= until]
        found: Earliest = None
        source = self._source
        if len(holding) > (FILES_AHEAD_LOCAL if source._folder.local else FILES_AHEAD_REMOTE):
            return {}
        for file in holding:
            try:
                facts = source._look(file)
            except (FileNotFoundError, BadFileError, UnavailableError):
                return {}  # the poll that offers the file says what is wrong with it
            found = _least(None if facts.rows == 0 else facts.earliest, found)
            if found == {}:
                break  # nothing is known of the times of one
        return found

    def _reject(self, file: Found, reason: str, status: str, etag: str | None = None) -> None:
        row = {
            "path": file.path,
            "size": file.size,
            "mtime_us": file.mtime_us,
            "etag": etag,
            "status": status,
        }
        self._rejects.append((json.dumps(row, ensure_ascii=False), reason))


@dataclass(frozen=True)
class _Generation:
    """The files that hold watermarks back until all of them are read: those that were known when it began.

    Files that appear later belong to the next generation, so a source that is always behind still lets
    watermarks rise.  A generation is named by the time of its newest file.
    """

    newest_us: int
    next_us: int

    @staticmethod
    def of(position: Any, partial: dict[str, Any] | None, fresh: Sequence[Found]) -> _Generation:
        """The generation at a position; a new one begins when all files of the last one were read."""
        times = [f.mtime_us for f in fresh] + ([] if partial is None else [partial["mtime_us"]])
        newest = max(times, default=0)
        began = (position or {}).get("until")
        if began is not None and min(times, default=newest) <= began:
            return _Generation(int(began), newest)
        return _Generation(newest, newest)

    def until(self, mtime_us: int) -> int:
        """The time of the newest file in the generation of a file."""
        return self.newest_us if mtime_us <= self.newest_us else self.next_us


class _Memory:
    """Caches the last comparison, so that an idle poll does not look at the files that were read before."""

    def __init__(self) -> None:
        self._given: tuple[Sequence[Found], pa.Table | None] | None = None
        self._found: tuple[list[Found], list[tuple[Found, set[str]]]] = [], []

    def sort_out(
        self, listing: Sequence[Found], seen: pa.Table | None
    ) -> tuple[list[Found], list[tuple[Found, set[str]]]]:
        if self._given is None or self._given[0] is not listing or self._given[1] is not seen:
            self._found = _sort_out(listing, seen)
            self._given = listing, seen
        return self._found


def _sort_out(
    listing: Sequence[Found], seen: pa.Table | None
) -> tuple[list[Found], list[tuple[Found, set[str]]]]:
    """The new files, and the files that changed after they were read, with their etags.

    `seen` may hold older rows of a path beside the newest: a version that any of them names is settled.
    """
    if seen is None or seen.num_rows == 0 or not listing:
        return list(listing), []
    paths = pa.array([f.path for f in listing], pa.string())
    at = pc.index_in(paths, value_set=seen.column("path").combine_chunks()).fill_null(-1).to_numpy()
    sizes, times = (seen.column(name).to_numpy()[at] for name in ("size", "mtime_us"))
    known = (at >= 0) & (sizes == [f.size for f in listing]) & (times == [f.mtime_us for f in listing])
    odd = pa.array([listing[i].path for i in np.flatnonzero((at >= 0) & ~known).tolist()], pa.string())
    held: dict[str, list[dict[str, Any]]] = {}
    if len(odd):
        for row in seen.filter(pc.is_in(seen.column("path"), value_set=odd)).to_pylist():
            held.setdefault(row["path"], []).append(row)
    fresh, changed = [], []
    for i in np.flatnonzero(~known).tolist():
        file = listing[i]
        rows = held.get(file.path, [])
        if any((r["size"], r["mtime_us"]) == (file.size, file.mtime_us) for r in rows):
            continue
        if any(r["status"] != "rejected" for r in rows):
            changed.append((file, {r["etag"] for r in rows if r["etag"] is not None}))
        else:
            fresh.append(file)
    return fresh, changed


def _identity(file: Found, facts: FileFacts) -> dict[str, Any]:
    return {"path": file.path, "size": file.size, "mtime_us": file.mtime_us, "etag": facts.etag}


def _partial(position: Any, path: str) -> dict[str, Any] | None:
    """The file that was read in part, from a position."""
    if position is None:
        return None
    partial = position.get("partial") if isinstance(position, dict) else None
    wanted = {"path", "size", "mtime_us", "etag", "next"}
    if (
        not isinstance(position, dict)
        or {*position} - {"until"} != {"files", "partial"}
        or (partial is not None and {*partial} != wanted)
    ):
        raise DataError(
            f"the position is not one of the folder {path!r}",
            detail=f"got {json.dumps(position, default=str)}",
            hint="the step read another kind of source before; give this one another name",
        )
    return partial


def _vanished(folder: str, path: str) -> UnavailableError:
    return UnavailableError(
        f"file {path!r} is gone, but was not read to its end",
        detail=f"it was admitted from {folder!r}",
        hint="restore the file; nothing that was committed is lost",
    )


def _gone(folder: str, path: str) -> UnavailableError:
    """The error for a split whose file is gone, in an epoch or in a replay."""
    return UnavailableError(
        f"file {path!r} is gone",
        detail=f"it was admitted from {folder!r}",
        hint="restore the file; nothing that was committed is lost",
    )


def _another(folder: str, then: Any, now: Found, etag: str) -> DataError:
    error = _changed(folder, then, now, etag)
    return DataError(f"file {now.path!r} changed after it was admitted", detail=error.detail, hint=error.hint)


def _changed(folder: str, then: Any, now: Found, etag: str) -> DataError:
    return DataError(
        f"file {now.path!r} changed while it was being read",
        detail=f"it had {then['size']} bytes and etag {then['etag']} when it was admitted, "
        f"and has {now.size} bytes and etag {etag} now, in {folder!r}",
        hint="put complete files into the folder, by renaming them; restore this one, or, if no epoch has "
        "read it yet, start again",
    )
