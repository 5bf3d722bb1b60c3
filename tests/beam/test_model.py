"""The plain model of windows and triggers against recorded answers of Beam, and what these answers cover."""

from __future__ import annotations

import pytest

from tests.beam import model
from tests.beam.compare import difference, expected, report
from tests.beam.record import recorded
from tests.beam.transcripts import coverage

RECORDED = recorded()
EVERY_NAME = {
    *("tumbling", "sliding", "sessions", "everything"),
    *("after_watermark", "after_count", "after_delay", "always", "never"),
    *("repeatedly", "after_any", "after_all", "after_each", "or_finally"),
    *("accumulating", "discarding", "retracting"),
}


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: one["seed"])
def test_the_model_agrees_with_beam(one):
    for case, beam in zip(one["cases"], one["answers"], strict=True):
        want = [{"panes": step["panes"], "late": step["late"]} for step in expected(case, beam)]
        got = model.run(case, one["steps"])
        assert difference(want, got) is None, "\n" + report(case, one["steps"], want, got)


def test_the_recorded_transcripts_cover_every_trigger_and_every_kind_of_pane():
    assert coverage(RECORDED) == EVERY_NAME
    found = dict.fromkeys(
        ["early", "on_time", "late", "last", "empty", "merged", "late rows", "retracted"], 0
    )
    found["last at expiry"] = 0
    for one in RECORDED:
        for case, beam in zip(one["cases"], one["answers"], strict=True):
            for step, answer in zip(beam, expected(case, beam), strict=True):
                found["late rows"] += len(answer["late"])
                found["retracted"] += len(answer["retracted"])
                found["last at expiry"] += len(answer["panes"]) - len(step["panes"])
                for _, start, end, rows, _, timing, last in answer["panes"]:
                    found[timing] += 1
                    found["last"] += last
                    found["empty"] += not rows
                    found["merged"] += case["window"][0] == "sessions" and end - start > case["window"][1]
    assert min(found.values()) >= 20, found
