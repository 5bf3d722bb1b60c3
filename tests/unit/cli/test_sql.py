"""`millpond sql` and pipelines in SQL: statements given, typed, and what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import millpond
from millpond.cli import prompt
from millpond.cli.app import app
from millpond.cli.commands import sql as command


def call(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, [*args], input=stdin, catch_exceptions=False)


@pytest.fixture
def pond(tmp_path: Path) -> str:
    path = str(tmp_path / "pond")
    done = call(
        "sql",
        path,
        "-c",
        "CREATE TABLE t (id int PRIMARY KEY, s text)",
        "-c",
        "INSERT INTO t VALUES (1, 'a,b'), (2, NULL); FLUSH",
    )
    assert done.exit_code == 0 and "INSERT 0 2" in done.output
    return path


def test_warnings_are_shown(tmp_path: Path) -> None:
    pond = str(tmp_path / "pond")
    define = "CREATE TABLE s (k int) APPEND ONLY; CREATE MATERIALIZED VIEW {} AS SELECT DISTINCT k FROM s"
    shown = call("sql", pond, "-c", define.format("v"))
    assert shown.exit_code == 0 and "warning: DISTINCT keeps every different row of s" in shown.output
    again = "CREATE MATERIALIZED VIEW w AS SELECT DISTINCT k + 1 AS k FROM s"
    found = json.loads(call("sql", pond, "-c", again, "-o", "json").stdout)
    assert found["status"] == "CREATE_MATERIALIZED_VIEW" and len(found["warnings"]) == 1


def test_tables_json_and_csv(pond: str) -> None:
    read = ("sql", pond, "-c", "SELECT s, id, id FROM t ORDER BY id")
    assert "2 rows" in call(*read).output
    assert call(*read, "-o", "csv").stdout == 's,id,id\n"a,b",1,1\n,2,2\n'
    found = json.loads(call(*read, "-o", "json").stdout)
    assert found["rows"] == [{"s": "a,b", "id": 1, "id_2": 1}, {"s": None, "id": 2, "id_2": 2}]
    assert call(*read, "-o", "xml").exit_code == 2


def test_files_pipes_and_mistakes(pond: str, tmp_path: Path) -> None:
    file = tmp_path / "more.sql"
    file.write_text("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t;\n-- done\nSELECT n FROM n;")
    assert "2" in call("sql", pond, "-f", str(file), "-o", "csv").stdout
    assert "7" in call("sql", pond, "-o", "csv", stdin="SELECT 7 AS n").stdout
    wrong = call("sql", pond, "-c", "SELECT nope FROM t")
    assert wrong.exit_code == 2 and "^^^^" in wrong.stderr
    assert call("sql", pond, "-f", str(tmp_path / "none.sql")).exit_code == 2


def test_the_prompt(
    pond: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lines: list[Any] = [
        "SELECT ';' AS",
        "  semi;",
        "",
        "SELECT nope;",
        "SELECT 'half",
        KeyboardInterrupt,
        "\\timing",
        "SELECT 1 AS one; SELECT 2 AS two;",
        "\\d",
        "\\d t",
        "CREATE FUNCTION twice(a int) RETURNS int AS $$",
        "SELECT a * 2; $$ LANGUAGE SQL;",
        "\\df",
        "\\df twice",
        "\\?",
        EOFError,
    ]
    asked: list[str] = []

    def typed(shown: str) -> str:
        asked.append(shown)
        line = lines.pop(0)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", typed)
    with millpond.open(pond, engine="inline") as opened:
        command.Prompt(opened, command.TEXT, "postgres").run()
        assert "t" in command.Prompt(opened, command.TEXT, "postgres")._names()
    out, err = capsys.readouterr()
    assert asked[:3] == [prompt.FIRST, prompt.MORE, prompt.FIRST]
    for part in ("semi", "one", "two", "timing is on", " ms", "table", "INTEGER", "twice(a INTEGER)", "\\q"):
        assert part in out, part
    assert "nope" in err
    assert not lines


def test_a_pipeline_in_sql(tmp_path: Path) -> None:
    file, path = tmp_path / "p.sql", str(tmp_path / "pond")
    file.write_text("""
        CREATE SOURCE bid WITH (connector = 'nexmark', events = 1000);
        CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM bid;
    """)
    for _ in range(2):  # what is there already stays
        done = call("run", str(file), "--pond", path, "--engine", "inline", "--until-idle")
        assert done.exit_code == 0, done.output
    assert call("sql", path, "-c", "SELECT n FROM n", "-o", "csv").stdout == "n\n920\n"
    file.write_text("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    wrong = call("run", str(file), "--pond", path, "--engine", "inline", "--until-idle")
    assert wrong.exit_code == 2 and "has only definitions" in wrong.stderr
    assert "bid" in call("explain", path).output
