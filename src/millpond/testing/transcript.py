"""Transcripts: tests of a pipeline as text, one event per line.

    + trades ts=00:00:01 user=ann amount=3.5     a row; `-` retracts one
    watermark trades 00:00:10                    event time advances without a row
    advance 5s                                   the clock advances; `at 00:01:00` sets it
    epoch                                        run what was fed and what is due
    crash                                        kill and reopen; `crash midway`: just before a commit
    rescale 3                                    another parallelism
    compact                                      merge the runs of all tables
    expect totals                                a view: these rows, in any order
      user=ann total=3.5
    expect alerts nothing

`expect` also takes `changes VIEW` (rows with `+` and `-`, since the last `expect changes`), `state STEP
NAME`, `timers STEP`, `errors`, `late STREAM`, and `view NAME` if a view has one of these names.
`column~"text"` expects a substring of a value.  Lines that begin with `#` are comments.

A transcript may name what it tests: `pipeline FILE.py:function` and `source NAME column=type ...`.
Laws: an error names the line that caused it; the results of a pipeline do not depend on disturbances (laws 2
to 4), so a transcript can be run again with each of them.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.arguments.schemas import Like
from millpond.errors import InvalidError, MillpondError
from millpond.testing.harness import Harness
from millpond.testing.notation import ExpectedValue, expected_values, row_values, show_row
from millpond.testing.row_differences import Seen

Pipeline = Callable[..., Any]

NOTHING = "nothing"
INDENT = "  "
DISTURBANCES = ("crash", "crash midway", "compact", "rescale")  # at every epoch of a transcript
_TYPES: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "bytes": bytes,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "decimal": decimal.Decimal,
}


@dataclass
class TranscriptStatement:
    """A line and the indented lines below it."""

    number: int
    words: list[str]
    text: str
    block: list[tuple[int, str]] = field(default_factory=list)  # (line, text without indent)
    ends: int = 0  # the last line of the block


Edit = tuple[TranscriptStatement, list[str]]  # an expectation, and the corrected lines below it


def run_transcript(
    text: str,
    pipeline: Pipeline | None = None,
    sources: Mapping[str, Like] | None = None,
    *,
    retracts: Collection[str] = (),
    parallelism: int = 1,
    update: bool = False,
    disturbed: bool = False,
    name: str = "transcript",
    near: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> str:
    """Run a transcript; an AssertionError reports the first expectation that fails, with its line.

    With `update` nothing fails: the returned text has the failed expectations rewritten.  Otherwise the text
    is returned unchanged.  With `disturbed` it is then run again with a crash after every epoch, a crash
    during every epoch, a compaction after every epoch, and another parallelism for each: none may make a
    difference.  `near` is the folder that contains the file of `pipeline FILE.py:name`.
    """
    statements = parse(text, name)
    defined: dict[str, Like] = {}
    retracted = set(retracts)
    events: list[TranscriptStatement] = []
    for statement in statements:
        with _at(name, statement.number):
            if statement.words[0] == "source":
                source, columns, back = _source(statement)
                if source in defined:
                    raise InvalidError(f"source {source!r} is defined twice")
                defined[source] = columns
                retracted |= {source} if back else set()
            elif statement.words[0] == "pipeline":
                if pipeline is None:
                    pipeline = _load(statement, Path(near or "."))
            else:
                events.append(statement)
    if pipeline is None:
        raise InvalidError(
            f"{name} does not say what it tests",
            hint="pass a pipeline, or begin with a line such as: pipeline my_job.py:pipeline",
        )
    all_sources = {**defined, **(sources or {})}
    tested = pipeline

    def run(disturbance: str, rewrite: bool) -> list[Edit]:
        edits: list[Edit] = []
        with Harness(tested, all_sources, parallelism=parallelism, retracts=retracted, **settings) as harness:
            for statement in events:
                with _at(name, statement.number, disturbance):
                    if statement.words == ["epoch"]:
                        _disturbed_epoch(harness, disturbance)
                        continue
                    rows = _perform(harness, statement, name, update=rewrite)
                    if rows is not None:
                        edits.append((statement, rows))
        return edits

    edits = run("", update)
    found = _edited(text, edits)
    if disturbed and edits:
        events = [s for s in parse(found, name) if s.words[0] not in ("source", "pipeline")]
    for disturbance in DISTURBANCES if disturbed else ():
        run(disturbance, False)
    return found


def _disturbed_epoch(harness: Harness, disturbance: str) -> None:
    if disturbance == "crash midway":
        harness.crash(midway=True)
    epoch = harness.epoch()
    if disturbance == "crash":
        harness.crash()
    elif disturbance == "compact":
        harness.compact()
    elif disturbance == "rescale":
        harness.rescale(1 + epoch % 5)


def _edited(text: str, edits: Sequence[Edit]) -> str:
    if not edits:
        return text
    lines = text.splitlines()
    for statement, rows in reversed(edits):
        lines[statement.number - 1] = _head(statement)
        lines[statement.number : statement.ends] = rows
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def check_transcript(
    path: str | os.PathLike[str],
    pipeline: Pipeline | None = None,
    sources: Mapping[str, Like] | None = None,
    *,
    update: bool = False,
    **options: Any,
) -> None:
    """Run the transcript in a file; with `update` write the results into it instead of failing."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"the transcript {file} cannot be read", detail=str(error)) from error
    found = run_transcript(
        text, pipeline, sources, update=update, name=file.name, near=file.parent, **options
    )
    if found != text:
        file.write_text(found, encoding="utf-8")


# ---------------------------------------------------------------- reading


def parse(text: str, name: str = "transcript") -> list[TranscriptStatement]:
    """The statements of a transcript, with their blocks."""
    found: list[TranscriptStatement] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if line[0].isspace():
            with _at(name, number):
                if not found or found[-1].words[0] != "expect":
                    raise InvalidError(
                        "an indented line belongs to an expect, and there is none before it", detail=stripped
                    )
                found[-1].block.append((number, stripped))
                found[-1].ends = number
            continue
        verb, _, rest = stripped.partition(" ")
        if verb[:1] in "+-" and verb[1:]:  # written without a space
            verb, rest = verb[0], stripped[1:]
        plain = rest if verb in ("+", "-") else rest.partition(" #")[0]
        found.append(TranscriptStatement(number, [verb, *plain.split()], plain.strip(), ends=number))
    return found


def _source(statement: TranscriptStatement) -> tuple[str, dict[str, Any], bool]:
    """`source NAME column=type ... [retracts]`"""
    words = statement.words[1:]
    back = words[-1:] == ["retracts"]
    name, *columns = words[:-1] if back else words or [""]
    if not name or not columns or any("=" not in c for c in columns):
        raise InvalidError(
            "this source cannot be read",
            detail=f"source {statement.text}",
            hint="write: source trades ts=datetime user=str amount=float",
        )
    pairs = (column.partition("=") for column in columns)
    return name, {column: _type(kind) for column, _, kind in pairs}, back


def _type(name: str) -> Any:
    if name in _TYPES:
        return _TYPES[name]
    try:
        return pa.type_for_alias(name)
    except ValueError as error:
        raise InvalidError(
            f"no type named {name!r}", hint=f"types are {', '.join(_TYPES)}, and those of Arrow"
        ) from error


def _load(statement: TranscriptStatement, folder: Path) -> Pipeline:
    """`pipeline FILE.py:function`, beside the transcript, or `pipeline package.module:function`."""
    place, _, function = statement.text.rpartition(":")
    if not place or not function.isidentifier():
        raise InvalidError(
            "this pipeline cannot be read",
            detail=f"pipeline {statement.text}",
            hint="write: pipeline my_job.py:pipeline, or pipeline package.module:pipeline",
        )
    try:
        module = _file_module(folder / place) if place.endswith(".py") else importlib.import_module(place)
    except (ImportError, OSError) as error:
        raise InvalidError(f"{place} cannot be imported", detail=str(error)) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise InvalidError(f"{place} has no function {function!r}")
    pipeline: Pipeline = found
    return pipeline


def _file_module(path: Path) -> Any:
    absolute = path.absolute()
    name = f"{absolute.stem}_{hashlib.blake2b(str(absolute).encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, absolute)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # type hints and pickles look up the module there
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- running


def _perform(
    harness: Harness, statement: TranscriptStatement, name: str, *, update: bool
) -> list[str] | None:
    """Execute a statement; returns the new lines of an expectation that is rewritten."""
    verb, *words = statement.words
    match verb, words:
        case "+" | "-", [source, *_]:
            rest = statement.text[len(source) :]
            row = row_values(rest, harness._fed_kinds(source), repr(source))
            if not row:
                raise InvalidError("this row has no columns", hint=f"write: {verb} {source} column=value ...")
            (harness.feed if verb == "+" else harness.retract)(source, row)
        case "watermark", [source, time]:
            harness.watermark(source, time)
        case "advance", [duration]:
            harness.advance(duration)
        case "at", [time]:
            harness.at(time)
        case "epoch", []:
            harness.epoch()
        case "crash", []:
            harness.crash()
        case "crash", ["midway"]:
            harness.crash(midway=True)
        case "rescale", [n] if n.isdecimal():
            harness.rescale(int(n))
        case "compact", []:
            harness.compact()
        case "expect", [*_]:
            return _expect(harness, statement, name, update=update)
        case _:
            raise InvalidError(
                f"this line cannot be read: {' '.join([verb, statement.text]).strip()}",
                hint="begin it with +, -, watermark, advance, at, epoch, crash, rescale, compact or expect",
            )
    return None


def _expect(harness: Harness, statement: TranscriptStatement, name: str, *, update: bool) -> list[str] | None:
    words = _target(statement)
    seen = _seen(harness, words, statement)
    block = list(statement.block)
    if statement.words[-1] == NOTHING and words != statement.words[1:]:
        block.insert(0, (statement.number, NOTHING))
    expected: list[Mapping[str, ExpectedValue]] = []
    for number, line in block:
        with _at(name, number):
            if line != NOTHING:
                expected.append(_expected(line, seen))
            elif len(block) > 1:
                raise InvalidError("nothing is expected, and rows as well", hint="leave out one of them")
    if not block and not update:
        raise InvalidError(
            "what is expected is missing",
            hint="write rows below it, indented, or the word nothing; update=True writes what is found",
        )
    difference = seen.difference(expected) if block else ""
    if difference is None:
        return None
    if not update:
        raise AssertionError(difference)
    columns = seen.columns(expected)
    return [INDENT + show_row(row) for row in seen.shown(columns)] or [INDENT + NOTHING]


def _target(statement: TranscriptStatement) -> list[str]:
    """The words that name what is expected, without `nothing`."""
    words = statement.words[1:]
    return words[:-1] if len(words) > 1 and words[-1] == NOTHING else words


def _head(statement: TranscriptStatement) -> str:
    """The first line of an expectation that now has rows below it."""
    return " ".join(["expect", *_target(statement)])


def _seen(harness: Harness, words: Sequence[str], statement: TranscriptStatement) -> Seen:
    match words:
        case ["errors"]:
            return harness._errors_seen()
        case ["view", view]:
            return harness._view_seen(view)
        case ["changes", view]:
            return harness._changes_seen(view)
        case ["state", step, state]:
            return harness._state_seen(step, state)
        case ["timers", step]:
            return harness._timers_seen(step)
        case ["late", stream]:
            return harness._late_seen(stream)
        case [view] if view not in ("view", "changes", "state", "timers", "late"):
            return harness._view_seen(view)
    raise InvalidError(
        f"this expectation cannot be read: expect {statement.text}".strip(),
        hint="expect VIEW, changes VIEW, state STEP NAME, timers STEP, errors or late STREAM",
    )


def _expected(line: str, seen: Seen) -> dict[str, ExpectedValue]:
    """A row of a block; a row of changes has its sign."""
    if "_w" not in seen.kinds:
        return expected_values(line, seen.kinds, seen.what)
    sign, rest = line[0], line[1:]
    if sign not in "+-":
        raise InvalidError("a change begins with + or -", detail=line)
    return {"_w": ExpectedValue(sign), **expected_values(rest, seen.kinds, seen.what)}


@contextlib.contextmanager
def _at(name: str, number: int, disturbance: str = "") -> Iterator[None]:
    """Add the line to errors that are raised inside; a line of a block is shown before the one above it."""
    place = f"{name}, line {number}"
    if disturbance:
        place += f" (with {disturbance} at every epoch)"
    try:
        yield
    except MillpondError as error:
        if error.message.startswith(f"{name}, line "):
            raise
        raise type(error)(
            f"{place}: {error.message}",
            detail=error.detail,
            hint=error.hint,
            step=error.step,
            epoch=error.epoch,
        ) from error
    except AssertionError as error:
        raise AssertionError(f"{place}: {error}") from None
