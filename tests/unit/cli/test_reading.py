"""Commands that look: they start nothing and change nothing."""

from __future__ import annotations

import doctest
import json
import sys
from pathlib import Path

import pytest

from millpond.cli import app, arguments, values
from millpond.cli.app import COMMANDS, GROUPS
from millpond.cli.commands import epochs
from tests.unit.cli.ponds import ask, ask_json, make


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(tmp_path_factory.mktemp("reading") / "pond")


def test_epochs(pond: str) -> None:
    rows = ask_json("epochs", pond)["epochs"]
    assert [(r["epoch"], r["kind"], r["rows"]) for r in rows] == [
        (0, "create", None),
        (1, "epoch", 2),
        (2, "epoch", None),
        (3, "epoch", 1),
    ]
    assert rows[1]["note"] == "savepoint start"
    assert [r["epoch"] for r in ask_json("epochs", pond, "--limit", "2")["epochs"]] == [2, 3]
    text = ask("epochs", pond, "-n", "2").out
    assert "2 of 4 epochs" in text and "savepoint" not in text


def test_show(pond: str) -> None:
    shown = ask_json("show", pond, "3")
    assert shown["positions"] == {"inbox": 1, "sales": 2}
    assert shown["savepoints"] == {"start": 1}
    (table,) = shown["tables"]
    assert (table["table"], table["runs"], table["rows"]) == ("sales.by-shop/groups", 2, 3)
    assert ask_json("show", pond, "start")["epoch"] == 1
    assert shown["admitted"] == {"sales": [{"item": 1, "marks": 0}]}
    assert shown["counted"] == {"rows/sales": 1} and shown["counts"] == {"rows/sales": 3}
    assert table["changed"] == shown["changed"] == 1
    assert {s["step"] for s in shown["steps"]} == {"sales", "sales.by-shop"}
    text = ask("show", pond, "3").out
    assert "positions" in text and "sales 1 split" in text and "sales.by-shop" in text
    assert ask_json("show", pond, "0")["counted"] == {}


def test_views(pond: str) -> None:
    (view,) = ask_json("views", pond)["views"]
    assert view["view"] == "by_shop"
    assert view["key"] == ["shop"]
    assert view["columns"] == {"shop": "string", "n": "int64", "total": "int64"}
    assert "shop string, n int64, total int64" in ask("views", pond).out


def test_read_at_any_epoch(pond: str) -> None:
    def rows(*args: str) -> dict[str, int]:
        return {r["shop"]: r["total"] for r in ask_json("read", pond, "by_shop", *args)["rows"]}

    assert rows() == {"a": 11, "b": 2}
    assert rows("--epoch", "1") == rows("--epoch", "start") == {"a": 1, "b": 2}
    assert rows("--epoch", "0") == {}


def test_read_says_when_it_shows_a_part(pond: str) -> None:
    part = ask_json("read", pond, "by_shop", "--limit", "1")
    assert len(part["rows"]) == 1 and part["total"] == 2
    assert "1 of 2 rows at epoch 3; --limit 0 shows all" in ask("read", pond, "by_shop", "-n", "1").out
    assert "2 rows at epoch 3\n" in ask("read", pond, "by_shop", "-n", "0").out


def test_errors(pond: str) -> None:
    assert ask_json("errors", pond) == {"epoch": 3, "total": 0, "rows": []}
    assert ask_json("errors", pond, "--view", "by_shop")["total"] == 0
    assert ask("errors", pond, "--view", "nope").code == 2


def test_explain(pond: str) -> None:
    assert "Aggregate by (shop)" in ask("explain", pond).out
    assert ask("explain", pond, "--mermaid").out.startswith("flowchart LR\n")
    assert ask_json("explain", pond)["explain"].startswith("level 0\n")


def test_version() -> None:
    import millpond

    found = ask_json("version")
    assert found["millpond"] == millpond.__version__
    assert ask("--version").out.strip() == millpond.__version__


def test_reading_starts_no_spark(pond: str) -> None:
    import subprocess

    code = (
        "import sys; from millpond.cli.app import app\n"
        f"app(['read', {pond!r}, 'by_shop'], standalone_mode=False)\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("epochs", "{nowhere}"), "there is no pond here yet"),
        (("read", "{pond}", "by_shap"), "did you mean 'by_shop'?"),
        (("read", "{pond}", "by_shop", "--epoch", "99"), "there is no epoch 99 yet"),
        (("read", "{pond}", "by_shop", "--epoch", "nope"), "no savepoint named 'nope'"),
    ],
)
def test_wrong_calls(pond: str, tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    nowhere = tmp_path / "nowhere"
    found = ask(*(a.format(pond=pond, nowhere=nowhere) for a in args))
    assert found.code == 2
    assert message in found.err
    assert found.out == ""
    assert not nowhere.exists()


def test_unknown_output_is_a_usage_error(pond: str) -> None:
    found = ask("epochs", pond, "--output", "xml")
    assert found.code == 2 and "text or json" in found.err


ALL = [c.__name__ for group in COMMANDS.values() for c in group] + [
    f"{name} {c.__name__}" for name, (_, _, commands) in GROUPS.items() for c in commands
]


@pytest.mark.parametrize("command", ALL)
def test_help_everywhere(command: str) -> None:
    found = ask(*command.split(), "--help")
    assert found.code == 0
    assert f" {command} [OPTIONS]" in found.out
    assert "--output" in found.out


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [(PermissionError("no"), 4, "UnavailableError"), (ZeroDivisionError("oh"), 70, "InternalError")],
)
def test_the_unforeseen_has_the_same_shape(
    pond: str, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, kind: str
) -> None:
    def fail(*args: object, **named: object) -> None:
        raise error

    monkeypatch.setattr("millpond.cli.commands.epochs.summaries", fail)
    found = ask("epochs", pond, "-o", "json")
    assert found.code == code and json.loads(found.err)["kind"] == kind
    assert "Traceback" not in ask("epochs", pond).err
    monkeypatch.setenv("MILLPOND_TRACEBACK", "1")
    assert "Traceback" in ask("epochs", pond).err


def test_the_help_tells_the_exit_codes() -> None:
    text = " ".join(ask("--help").out.split())
    for code in app.EXIT_CODES.values():
        assert f" {code} " in text


def test_examples_in_the_code() -> None:
    for module in (app, arguments, values, epochs):
        assert doctest.testmod(module).failed == 0
