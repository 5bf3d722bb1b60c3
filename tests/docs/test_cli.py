"""docs/cli.md: its pipeline file and its commands run, and no command or exit code is missing."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millpond.cli.app import COMMANDS, EXIT_CODES, GROUPS, app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
TEXT = PAGE.read_text()


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (file,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    (tmp_path / "shop.py").write_text(file)
    lines = [
        line.removeprefix("$ ")
        for block in re.findall(r"```console\n(.*?)```", TEXT, re.S)
        for line in block.splitlines()
    ]
    assert len(lines) > 25
    for line in lines:
        if line.startswith("millpond "):
            done = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
            assert done.exit_code == 0, (line, done.output)
        else:
            subprocess.run(line, shell=True, check=True)
    assert (tmp_path / "spender.parquet").exists() and (tmp_path / "what-if").is_dir()


def test_every_command_is_documented() -> None:
    for commands in COMMANDS.values():
        for command in commands:
            assert f"millpond {command.__name__}" in TEXT, command.__name__
    for name, (_, _, commands) in GROUPS.items():
        for command in commands:
            assert f"millpond {name} {command.__name__}" in TEXT


def test_every_exit_code_is_documented() -> None:
    for kind, code in EXIT_CODES.items():
        assert re.search(rf"\| {code} \| `{kind.__name__}`", TEXT), kind
