"""Windows, triggers and panes against recorded answers of Apache Beam's trigger driver (laws 1 and 8).

`python -m tests.beam.record` records anew; `test_live` runs thousands of transcripts against Beam itself.
"""

from __future__ import annotations

import pytest

from tests.beam import millpond_run
from tests.beam.compare import difference, expected, report
from tests.beam.record import recorded
from tests.sampling import first

RECORDED = [*recorded()[::2], *recorded()[1::2]]  # every other one runs only with `make slow`
NAMES = [
    f"{'delays-' if any(s[0] == 'clock' for s in one['steps']) else ''}{one['seed']}" for one in RECORDED
]


def check(one, got):
    for case, beam, answer in zip(one["cases"], one["answers"], got, strict=True):
        want = expected(case, beam)
        assert difference(want, answer) is None, "\n" + report(case, one["steps"], want, answer)


@pytest.mark.parametrize("one", first(len(RECORDED) // 2, RECORDED), ids=NAMES)
def test_millpond_agrees_with_beam(one):
    check(one, millpond_run.run(one["cases"], one["steps"]))


@pytest.mark.parametrize("disturb", ["crash", "compact", "rescale"])
def test_restarts_compaction_and_rescaling_change_no_pane(disturb):
    one = max(RECORDED, key=lambda one: len(one["steps"]))
    one = {**one, "cases": one["cases"][:3], "answers": one["answers"][:3]}
    check(one, millpond_run.run(one["cases"], one["steps"], disturb))
