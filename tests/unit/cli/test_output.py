"""The two outputs say the same: one to people, one to scripts."""

from __future__ import annotations

import io
import json

import pytest

from millpond.cli.json_output import JsonOutput
from millpond.cli.output import FactsPart, MessagePart, OutputColumn, TablePart, TextPart
from millpond.cli.output_formats import make_output
from millpond.cli.text_output import TextOutput
from millpond.cli.values import count, json_of, size
from millpond.errors import ConflictError, InvalidError

PARTS = (
    FactsPart({"epoch": 3, "bytes": 2048}, (OutputColumn("bytes", "size", size),)),
    TablePart(
        "rows",
        (OutputColumn("k"), OutputColumn("n", "how many", count, right=True)),
        [{"k": None, "n": 12345}],
        "one row",
        {"total": 1},
    ),
    TextPart("plan", "level 0\n  a [b] -> c"),
    MessagePart("done in epoch 3", {"status": "done"}),
)


def written(make: type[TextOutput] | type[JsonOutput]) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    output = make(out, err)
    output.write(*PARTS)
    output.error(ConflictError("another won", detail="1 and 2", hint="stop one", epoch=4))
    return out.getvalue(), err.getvalue()


def test_text_is_plain_where_there_is_no_terminal() -> None:
    out, err = written(TextOutput)
    assert "\x1b" not in out + err
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines == [
        "epoch  3",
        "size   2.0 KiB",
        "",
        "k  how many",
        "-    12,345",
        "one row",
        "",
        "level 0",
        "  a [b] -> c",
        "",
        "done in epoch 3",
    ]
    assert err == "another won\n  where: epoch 4\n  detail: 1 and 2\n  hint: stop one\n"


def test_text_has_colours_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    err = Terminal()
    TextOutput(None, err).error(InvalidError("wrong"))
    assert "\x1b[1;31mwrong" in err.getvalue()


def test_json_is_one_object_with_the_values_themselves() -> None:
    out, err = written(JsonOutput)
    assert json.loads(out) == {
        "epoch": 3,
        "bytes": 2048,
        "total": 1,
        "rows": [{"k": None, "n": 12345}],
        "plan": "level 0\n  a [b] -> c",
        "status": "done",
    }
    fields = {"kind": "ConflictError", "message": "another won", "detail": "1 and 2", "hint": "stop one"}
    assert json.loads(err) == {**fields, "step": None, "epoch": 4}


def test_an_empty_table_says_so() -> None:
    out = io.StringIO()
    TextOutput(out).write(TablePart("views", (OutputColumn("view"),), []))
    assert out.getvalue().strip() == "no views"


def test_infinities_are_json() -> None:
    assert json.loads(json.dumps(json_of([float("inf"), float("-inf"), 1.5]), allow_nan=False)) == [
        "Infinity",
        "-Infinity",
        1.5,
    ]


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(InvalidError, match="no output named 'xml'"):
        make_output("xml")
