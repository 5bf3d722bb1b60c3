"""Transcripts: what they do, how they fail, and how they are written anew."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import ListState, Pond, Process, ValueState
from millpond.errors import InvalidError
from millpond.testing import check_transcript, run_transcript
from tests.unit.testing.pipelines import LIMITS, TRADES, pipeline

HERE = Path(__file__).parent
SOURCE = "source words word=str x=int\n"


def counting(pond: Pond, words: Any) -> None:
    pond.stream("words", words).key_by("word").aggregate(n="count(*)", total="sum(x)").view("counts")


def test_a_transcript_in_a_file_holds_under_every_disturbance() -> None:
    """Laws 2, 3 and 4: crashes, compaction and parallelism make no difference."""
    check_transcript(HERE / "watch.txt", disturbed=True)


def test_expectations_written_anew_are_those_of_the_file(tmp_path: Path) -> None:
    """The golden file without its expected rows gets them back."""
    shutil.copy(HERE / "pipelines.py", tmp_path)
    whole = (HERE / "watch.txt").read_text()
    bare = "\n".join(line for line in whole.splitlines() if not line.startswith("  ") or "~" in line) + "\n"
    assert bare.count("\n") < whole.count("\n") - 30
    file = tmp_path / "watch.txt"
    file.write_text(bare)
    with pytest.raises(InvalidError, match=r"watch.txt, line 10: what is expected is missing"):
        check_transcript(file)
    check_transcript(file, update=True)
    assert file.read_text() == whole
    check_transcript(file, update=True)
    assert file.read_text() == whole


def test_a_wrong_row_is_told_with_its_line_and_what_was_found() -> None:
    text = SOURCE + '+ words word=mill x=1\nepoch\n\nexpect counts\n  word=mill n=2\n  word="a b" n=1\n'
    with pytest.raises(AssertionError) as error:
        run_transcript(text, counting)
    assert str(error.value).splitlines() == [
        "transcript, line 5: view 'counts' is not as expected: it has 1 row, expected 2",
        "  missing      word=mill n=2",
        '  missing      word="a b" n=1',
        "  unexpected   word=mill n=1",
    ]
    anew = run_transcript(text, counting, update=True)
    assert anew == SOURCE + "+ words word=mill x=1\nepoch\n\nexpect counts\n  word=mill n=1\n"
    assert run_transcript(anew, counting) == anew


def test_expecting_nothing_can_fail_and_be_written_anew() -> None:
    text = SOURCE + "+ words word=mill x=1\nepoch\nexpect counts nothing\nexpect errors\n  nothing\nepoch"
    with pytest.raises(AssertionError, match=r"line 4: view 'counts' .* it has 1 row, expected 0"):
        run_transcript(text, counting)
    anew = run_transcript(text, counting, update=True)
    assert "expect counts\n  word=mill n=1 total=1\nexpect errors\n  nothing\nepoch" in anew
    gone = run_transcript(anew.replace("+ words word=mill x=1\n", ""), counting, update=True)
    assert gone.endswith("expect counts\n  nothing\nexpect errors\n  nothing\nepoch")


def test_changes_have_signs_and_repeat() -> None:
    text = (
        "source words word=str x=int retracts\n+ words word=a x=1\n+ words word=a x=1\nepoch\n"
        "expect changes counts\n  + word=a n=2\n- words word=a x=1\nepoch\n"
        "expect changes counts\n  - word=a n=2\n  + word=a n=1\nexpect changes counts nothing\n"
    )
    run_transcript(text, counting, disturbed=True)
    with pytest.raises(
        AssertionError, match=r"(?s)line 9.*missing      \+ word=a n=2.*unexpected   - word=a n=2"
    ):
        run_transcript(text.replace("  - word=a n=2", "  + word=a n=2"), counting)
    with pytest.raises(InvalidError, match="line 6: a change begins with"):
        run_transcript(text.replace("  + word=a n=2", "  word=a n=2"), counting)


def test_a_pipeline_that_keeps_state_of_its_own_fails_when_disturbed() -> None:
    def cheating(pond: Pond, words: Any) -> None:
        seen: set[str] = set()

        class First(Process):
            def on_row(self, row: Any, ctx: Any) -> list[dict[str, Any]]:
                if row.word in seen:
                    return []
                seen.add(row.word)
                return [{"word": row.word}]

        pond.stream("words", words).key_by("word").process(First, {"word": str}, id="first").view("out")

    text = SOURCE + "+ words word=a\nepoch\n+ words word=a\nepoch\nexpect out\n  word=a\n"
    run_transcript(text, cheating)
    with pytest.raises(AssertionError, match=r"line 6 \(with crash at every epoch\): view 'out'"):
        run_transcript(text, cheating, disturbed=True)


def test_parts_of_values_are_matched_after_whole_ones() -> None:
    text = SOURCE + "+ words word=mill x=1\n+ words word=pond x=1\nepoch\nexpect counts\n"
    run_transcript(text + '  word~"i"\n  word=pond\n', counting)
    run_transcript(text + "  word~o\n  word=mill\n", counting)
    alike = text.replace("pond", "pill")
    run_transcript(alike + "  word~ill\n  word=mill\n", counting)
    with pytest.raises(AssertionError, match='missing      word~"z"'):
        run_transcript(text + "  word~z\n  word=mill\n", counting)
    same = text + "  word~i\n  word~o\n"
    assert run_transcript(same, counting, update=True) == same  # what holds is left as it is written


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hello", "line 2: this line cannot be read: hello"),
        ("epoch 3", "line 2: this line cannot be read: epoch 3"),
        ("rescale many", "line 2: this line cannot be read"),
        ("rescale 0", "line 2: parallelism must be"),
        ("crash loudly", "line 2: this line cannot be read"),
        ("+ wrds word=a", "line 2: no source or table named 'wrds'"),
        ("+ words wrd=a", "line 2: 'words' has no column 'wrd'"),
        ("+ words word=a x=b", "line 2: 'b' does not fit column 'x' of 'words'"),
        ("+ words word=a word=b", "line 2: column 'word' comes twice"),
        ('+ words word="a', "line 2: the value of column 'word' is not JSON"),
        ('+ words word="a"b', "line 2: a space is missing after the value of column 'word'"),
        ("+ words word", "line 2: this row cannot be read from 'word' on"),
        ("+ words word~a", "line 2: this row cannot be read"),
        ("+ words {word: a}", "line 2: this row is not JSON"),
        ("+ words", "line 2: this row has no columns"),
        ("- words word=a", "line 2: rows of 'words' cannot be taken back"),
        ("watermark words 00:00:01", "line 2: no stream of source 'words' has event time"),
        ("advance soon", "line 2: not a duration"),
        ("at noon", "line 2: not a time: 'noon'"),
        ("  word=a", "line 2: an indented line belongs to an expect"),
        ("expect", "line 2: this expectation cannot be read"),
        ("expect state first", "line 2: this expectation cannot be read"),
        ("expect timers", "line 2: this expectation cannot be read"),
        ("expect counts", "line 2: what is expected is missing"),
        ("expect counts\n  word=a nn=1", "line 3: view 'counts' has no column 'nn'"),
        ("expect counts\n  word=a\n  n=many", "line 4: 'many' does not fit column 'n'"),
        ("expect counts\n  nothing\n  word=a", "line 3: nothing is expected, and rows as well"),
        ("expect count nothing", "line 2: no view named 'count'"),
        ("expect late words nothing", "line 2: step 'words' keeps no late rows"),
        ("source words x=int", "line 2: source 'words' is defined twice"),
        ("source more", "line 2: this source cannot be read"),
        ("source more x=number", "line 2: no type named 'number'"),
        ("source more x=int", "counting cannot be called with"),
    ],
)
def test_a_line_that_cannot_be_done_is_told_with_its_number(line: str, says: str) -> None:
    with pytest.raises(InvalidError) as error:
        run_transcript(SOURCE + line + "\n", counting)
    assert says in error.value.message


def test_what_the_pipeline_raises_is_told_with_the_line_of_the_epoch() -> None:
    def looping(pond: Pond, words: Any) -> None:
        def f(row: Any) -> Any:
            while True:
                pass

        pond.stream("words", words).key_by("word").process(f, {"n": int}, id="loops", timeout="200ms").view(
            "v"
        )

    with pytest.raises(InvalidError, match="transcript, line 3: ") as error:
        run_transcript(SOURCE + "+ words word=a\nepoch\n", looping)
    assert error.value.step == "loops" or "loops" in str(error.value)


def test_what_a_transcript_tests_may_be_given_or_named(tmp_path: Path) -> None:
    text = "+ trades ts=00:00:01 user=ann shop=tea amount=1.5\nepoch\nexpect state watch total\n  total=1.5\n"
    run_transcript(text, pipeline, {"trades": TRADES}, parallelism=3)
    with pytest.raises(InvalidError, match="my test does not say what it tests"):
        run_transcript(text, name="my test")
    named = "pipeline tests.unit.testing.pipelines:pipeline\n" + text
    run_transcript(named, sources={"trades": TRADES})
    for line, says in (
        ("pipeline nowhere.py:pipeline", "nowhere.py cannot be imported"),
        ("pipeline no_such_module_here:pipeline", "no_such_module_here cannot be imported"),
        ("pipeline tests.unit.testing.pipelines:none", "has no function 'none'"),
        ("pipeline tests.unit.testing.pipelines", "this pipeline cannot be read"),
    ):
        with pytest.raises(InvalidError, match=f"transcript, line 1: .*{says}"):
            run_transcript(f"{line}\n{text}", near=tmp_path)
    with pytest.raises(InvalidError, match="cannot be read"):
        check_transcript(tmp_path / "none.txt")
    assert LIMITS  # the table is fed by name, and typed by the pond


TYPED = """\
+ s ts=00:00:01 day=2024-05-01 raw=0x0061
epoch
expect v
  at=00:00:01 day=2024-05-01
expect state all last
  last=00:00:01
expect timers all
  timer=x at=00:00:04 clock=event
expect state each many
  day=2024-05-01 raw=0x0061 position=0 a=1 b=[1, 2]
+ s ts=2024-01-02T00:00:00 day=null
+ s raw=0x
epoch
expect changes v
  + at=00:00:01 day=2024-05-01
  + at=00:00:04 day=null
  + at=2024-01-02T00:00:00 day=null
expect errors
  step=s.watermark row="{\\"ts\\":null,\\"day\\":null,\\"raw\\":\\"\\"}" reason="time column 'ts' is NULL"
expect state each last
  day=2024-05-01 raw=0x0061 last=00:00:01
  day=null raw=null last=2024-01-02T00:00:00
"""


class Typed(Process):
    last = ValueState(pa.timestamp("us", "UTC"))
    many = ListState({"a": int, "b": list[int]})

    def on_row(self, row: Any, ctx: Any) -> dict[str, Any]:
        self.last.value = row.ts
        self.many.append({"a": 1, "b": [1, 2]})
        ctx.set_timer("x", after=3)
        return {"at": row.ts, "day": row.day}

    def on_timer(self, timer: Any, ctx: Any) -> dict[str, Any]:
        return {"at": timer.at, "day": None}


def test_times_with_zones_keys_of_all_types_and_none() -> None:
    """The golden text is what is found, bit for bit, and holds under every disturbance."""

    def typed(pond: Pond, s: Any) -> None:
        stream = pond.stream("s", s, event_time="ts")
        given = {"at": pa.timestamp("us", "UTC"), "day": dt.date}
        stream.key_by().process(Typed, given, id="all").view("v")
        stream.key_by("day", "raw").process(Typed, given, id="each").view("w")

    sources = {"s": {"ts": pa.timestamp("us", "Europe/Berlin"), "day": dt.date, "raw": bytes}}
    bare = "\n".join(line for line in TYPED.splitlines() if not line.startswith("  ")) + "\n"
    assert run_transcript(bare, typed, sources, update=True, disturbed=True) == TYPED


def test_rows_may_be_json_and_views_may_have_any_name() -> None:
    def odd(pond: Pond, words: Any) -> None:
        pond.stream("words", words).view("errors")

    text = (
        SOURCE
        + '+ words {"word": "a \\"b\\"", "x": null}\n+words word="#1" x=-2   # a remark\nepoch  # now\n'
        + 'expect view errors # all of it\n  {"word": "a \\"b\\"", "x": null}\n  word="#1" x=-2  # and this\n'
        + "expect errors nothing\n"
    )
    run_transcript(text, odd)
    bare = text.partition("expect")[0] + "expect view errors\n"
    anew = run_transcript(bare, odd, update=True)
    assert anew.endswith('expect view errors\n  word="#1" x=-2\n  word="a \\"b\\"" x=null\n')
