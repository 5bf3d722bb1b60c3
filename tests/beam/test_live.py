"""Windows, triggers and panes against Apache Beam's trigger driver itself, with as many transcripts as wanted.

    MILLPOND_BEAM_TRANSCRIPTS=100 MILLPOND_BEAM_FIRST=7000 pytest -q -s tests/beam/test_live.py

A transcript has 12 cases over the rows of 12 keys. A failure prints the smallest case and input that still fail.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.beam import environment, millpond_run
from tests.beam.compare import difference, expected, report
from tests.beam.transcripts import smallest, transcript

TRANSCRIPTS = int(os.environ.get("MILLPOND_BEAM_TRANSCRIPTS", "0"))
FIRST = int(os.environ.get("MILLPOND_BEAM_FIRST", "0"))
AT_ONCE = 20
EVERY_DELAYS = 8  # one transcript in so many has triggers of processing time
FAILURES_MAX = 3  # that are reduced and shown


@pytest.fixture(scope="module")
def beam():
    if not TRANSCRIPTS:
        pytest.skip("set MILLPOND_BEAM_TRANSCRIPTS, or run `make fuzz`")
    try:
        python = environment.interpreter()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"Apache Beam cannot be installed: {error}")
    with environment.Oracle(python) as oracle:
        yield oracle


def both(beam, case, steps):
    """(what Beam's answer means for us, our answer)"""
    (answer,) = beam.answers([case], steps)
    (got,) = millpond_run.run([case], steps)
    return expected(case, answer), got


@pytest.mark.parametrize("first", range(FIRST, FIRST + max(TRANSCRIPTS, 1), AT_ONCE))
def test_millpond_agrees_with_beam(beam, first):
    seeds = range(first, min(first + AT_ONCE, FIRST + TRANSCRIPTS))
    failed = []
    for seed in seeds:
        one = transcript(seed, cases=12, keys=12, delays=seed % EVERY_DELAYS == 0)
        got = millpond_run.run(one["cases"], one["steps"])
        for case, answer, ours in zip(
            one["cases"], beam.answers(one["cases"], one["steps"]), got, strict=True
        ):
            if difference(expected(case, answer), ours) is not None:
                failed.append((one, case))
    told = []
    for one, case in failed[:FAILURES_MAX]:
        small = smallest(case, one["steps"], lambda *of: difference(*both(beam, *of)) is not None)
        told.append(f"seed {one['seed']}: {report(*small, *both(beam, *small))}")
    assert not failed, f"{len(failed)} cases differ from Beam\n" + "\n".join(told)
