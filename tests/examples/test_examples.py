"""Every example, and the README's, is run and says what it promises."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LINES_MAX = 80

# The words in each example's output that only a right answer brings, in their order.
INLINE = {
    "first_pipeline": [
        "epoch 1: [{'city': 'Bern', 'orders': 2, 'revenue': 17}, {'city': 'Oslo', 'orders': 1, ",
        "{'city': 'Kyiv', 'orders': 1, 'revenue': 8}",
        "one key: [{'city': 'Oslo', 'orders': 2, 'revenue': 100}]",
        "read again: 3 rows",
    ],
    "windows": [
        "12:00:15 has come",
        "window_start 2026-03-01 12:00:00, window_end 2026-03-01 12:00:10, page home, clicks 3",
        "A closed window does not change",
        "window_start 2026-03-01 12:00:00, window_end 2026-03-01 12:00:10, page home, clicks 3",
        "The late row is not lost",
        "page home, at 2026-03-01 12:00:03",
        "counted: {'late/clicks.watermark': 1}",
    ],
    "join_table": [
        "{'category': 'sport', 'orders': 1, 'revenue': 700}, {'category': None, 'orders': 1, ",
        "the table changed:  [{'category': 'boats', 'orders': 1, 'revenue': 650}",
        "a row was deleted:",
        "{'category': None, 'orders': 1, 'revenue': None}]",
        "what the first change did:",
    ],
    "time_travel": [
        "now:               {'ann': -999899, 'bob': 50}",
        "in the past:       {'ann': 100, 'bob': 50} also by number: {'ann': 100, 'bob': 50}",
        "a fork begins as:  {'ann': -999899, 'bob': 50}",
        "rolled back:       {'ann': 100, 'bob': 57}",
        "history is kept:   {'ann': -999899, 'bob': 50}",
        "the fork has its own: {'ann': -999899, 'bob': 50}",
    ],
    "errors": [
        "good rows: [{'sensor': 'a', 'readings': 2, 'mean': 21.0}]",
        "parse: ValueError: not enough values to unpack",
        "readings: 1.json",
        "counted: {'errors/parse': 1, 'errors/readings': 1}",
    ],
    "sessions": [
        "ann: 09:00 to 09:08, 3 clicks",
        "ann: 09:30 to 09:41, 3 clicks",
        "bob: 09:01 to 09:18, 3 clicks",
        "bob: 09:51 to 09:51, 1 clicks",
        "cyd: 09:20 to 09:38, 4 clicks",
        "too late: bob at 09:02",
    ],
    "panes": [
        "books 09:00 on_time: 1 sales, 13",
        "books 09:00 late: 2 sales, 73",
        "tea 09:00 early: 4 sales, 74",
        "tea 09:00 on_time: 4 sales, 74",
        "5 panes; the newest of each window are the 3 rows of the view",
        "the upserted table has the same 3 rows",
        "too late: tea 09:30, for the window from 09:00",
    ],
    "calendar_months": [
        "Europe/Berlin:",
        "March 2026:    110 (begins at 28 Feb 23:00 UTC, 743 hours)",
        "April 2026:  11000 (begins at 31 Mar 22:00 UTC, 720 hours)",
        "Asia/Tokyo:",
        "March 2026:     11 (begins at 28 Feb 15:00 UTC, 744 hours)",
        "April 2026:  11100 (begins at 31 Mar 15:00 UTC, 720 hours)",
    ],
    "session_windows": [
        "ann 09:00 to 09:04, clicks: 2 (early)",
        "ann 09:18 to 09:20, clicks: 2 (early)",
        "two clicks between them make one of two:",
        "ann 09:00 to 09:20, clicks: 6 (early)",
        "ann 09:00 to 09:20, clicks: 6 (on_time)",
        "bob 09:12 to 09:12, clicks: 1 (on_time)",
        "bob 09:12 to 09:15, clicks: 2 (late)",
        "in all: ann 1 visits, 6 clicks",
        "in all: bob 1 visits, 2 clicks",
        "too late: bob at 09:16",
    ],
    "session_gaps": [
        "ann 09:00:00 to 09:09:00, clicks: 3, open until 09:19:00",
        "bob 09:00:00 to 09:00:00, clicks: 1, open until 09:01:00",
        "bob 09:03:00 to 09:03:00, clicks: 1, open until 09:04:00",
        "bob 09:03:00 to 09:04:15, clicks: 3, open until 09:05:15",
        "ann 09:00:00 to 09:25:00, clicks: 5, open until 09:35:00",
        "a click that comes too late:",
        "bob 09:03:00 to 09:04:15, clicks: 3, open until 09:05:15",
        "too late: bob at 09:05",
    ],
    "control_stream": [
        "payment 1: book shop, 9.00 euro, 9.00 in all",
        "payment 4: book shop, 8.00 euro, 17.00 in all",
        "payment 5: tea shop, 9.00 euro, 13.00 in all",
        "payment 3: no rate for NOK",
        "payment 6: no rate for USD",
    ],
    "live_top_n": [
        "after 10 minutes: Anthem (79 plays), Ballad (55 plays), Carol (40 plays)",
        "after 20 minutes: Carol (133 plays), Ballad (102 plays), Anthem (105 plays)",
        "after 30 minutes: Etude (131 plays), Carol (178 plays), Ballad (110 plays)",
        "- Anthem 105",
        "+ Etude 131",
    ],
    "load_shedding": ["60% of the rows were shed", "exact again: [30000, 30000, 30000]"],
    "synopses": [
        "minute 0: about 1467 people, 99 % of the requests took at most 194 ms",
        "all minutes: about 2634 people, 191 ms",
    ],
    "deduplicate": [
        "1500 rows, 1245 messages",
        "7479 rows, 6001 messages",
        "amount 297000 once, 371770 with repetitions",
    ],
    "functions": [
        "('ANN!', 2, Decimal('11'), 'Flood at the mill #river')",
        "('BOB!', 2, Decimal('5'), '#river and #ducks')",
        "by tag: [('ducks', 1), ('river', 2)]",
        "('ANN!', 1, Decimal('4'), 'All quiet')",
        "by tag: [('ducks', 1), ('river', 1)]",
        "not lost: tags(): ValueError: a tag needs a name (functions.py:",
        "shout(who VARCHAR, mark VARCHAR DEFAULT '!')",
    ],
    "forks": [
        "at the savepoint: a 519 gold, b 302, c 109, d 451 gold, e 292, f 221",
        "the shop goes on: a 639 gold, b 592 gold, c 155, d 631 gold, e 398, f 493 gold",
        "team-a:           a 639 gold, b 592 gold, c 155, d 631 gold, e 398 gold, f 493 gold",
        "team-b:           a 639, b 592, c 155, d 631 gold, e 398, f 493 gold",
        "the shop did not notice: True",
    ],
}
SPARK = {
    "own_spark_session": [
        "epoch 1: [{'auction': 0, 'bids': 333, 'highest': 999}, {'auction': 1, 'bids': 334, 'highest': 1000}",
        "{'auction': 1, 'bids': 335, 'highest': 5000}",
        "tasks of each level: [1, 1] of 4",
        "|auction|bids|highest|",
    ],
    "spark_bridge": [
        "cities: [('Bern', 5, 20), ('Oslo', 5, 25)]",
        "alerts: [('Bern', 120), ('Oslo', 25)]",
        "squares: [0, 1, 4, 9, 16]",
    ],
    "fraud": [
        "epoch 4: 3007 charges, 2 alerts",
        "card 007: tried with 0.50, 899.00 taken 21 s later",
        "card 042: tried with 0.01, 1200.00 taken 55 s later",
    ],
    "online_learning": [
        "epoch 1: drill 70.0% of 20, lathe 50.0% of 20, press 80.0% of 20",
        "epoch 3: drill 91.5% of 787, lathe 88.9% of 787, press 93.8% of 786",
    ],
}


ELSEWHERE = {"change_capture"}  # needs a database: tests/e2e/test_end_to_end.py


def assert_in_order(words: list[str], text: str) -> None:
    at = 0
    for word in words:
        found = text.find(word, at)
        assert found >= 0, f"{word!r} is not in what follows:\n{text[at:]}"
        at = found + len(word)


@pytest.mark.parametrize("name", INLINE)
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert_in_order(INLINE[name], capsys.readouterr().out)


# One in the normal run, since each starts a Spark; `make slow` runs the others.
@pytest.mark.spark
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "own_spark_session" else pytest.mark.slow) for n in SPARK]
)
def test_example_on_spark(name: str) -> None:
    """In a process of its own: it stops the Spark session it made."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert_in_order(SPARK[name], done.stdout)


def test_every_example_is_run_and_short() -> None:
    there = {path.stem for path in EXAMPLES.glob("*.py")}
    assert there == {*INLINE, *SPARK, *ELSEWHERE}
    for name in there:
        assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < LINES_MAX, name


def test_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its example works by copy and paste, and its comments tell the truth."""
    text = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    promised = re.findall(r"^print\(.*# (.*)$", code, re.MULTILINE)
    assert len(promised) == 3
    assert capsys.readouterr().out.splitlines() == promised
    assert "make test" in text and "make demo" in text
    assert len(text.splitlines()) <= 50  # one screen


def test_the_readme_names_what_is_there() -> None:
    text = (ROOT / "README.md").read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link
    done = subprocess.run(
        [sys.executable, "-m", "millpond", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    for command in re.findall(r"`millpond (\w+)", text):
        assert f" {command} " in done.stdout, command
