"""What the recovery benchmark makes of the lives that it saw."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import data
from benchmarks.recovery import outcome, staged
from benchmarks.recovery.flink_follower import FlinkFollower
from benchmarks.recovery.follower import Commit, Follower, Seen, told
from benchmarks.recovery.staged import Staged, Trickle
from tests.waiting import until

SMALL = Staged(keys=10, changes=4, keys_per_file=4)


def test_every_key_is_loaded_once_and_files_tell_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "ROOT", tmp_path)
    folder = staged.ensure(SMALL)
    tables = [pq.read_table(folder / staged.file_name(n)) for n in range(SMALL.load)]
    assert [key for table in tables for key in table["auction"].to_pylist()] == list(range(10))
    assert [set(table["number"].to_pylist()) for table in tables] == [{0}, {1}, {2}]


def test_a_trickle_goes_on_where_the_load_ended(tmp_path: Path) -> None:
    with Trickle(SMALL, tmp_path, 0.01) as trickle:
        until(lambda: len(trickle.published) >= 3)
    assert sorted(trickle.published)[:3] == [3, 4, 5]
    assert pq.read_table(tmp_path / staged.file_name(4))["number"].to_pylist() == [4] * 4
    assert not list(tmp_path.glob(".*"))


def test_only_a_file_from_after_the_kill_is_a_new_result() -> None:
    seen = Seen(12.0, (Commit(12.5, 7), Commit(13.0, 8), Commit(14.5, 9)))
    rows = [Commit(12.2, 8), Commit(12.75, 9)]
    found = outcome.returned(seen, 10.0, 8, 2, rows)
    assert (found.startup_s, found.restore_s, found.emitted_s, found.total_s) == (2.0, 2.5, 0.75, 4.5)


def test_a_checkpoint_of_flink_commits_what_went_into_the_sink_before_it(tmp_path: Path) -> None:
    one = FlinkFollower(tmp_path, tmp_path / "bids", 2)
    one.life = 1
    one.place.mkdir()
    logged = "2026-11-16 00:00:0{} INFO  x [] - {}"
    (one.place / "flink.log").write_text(
        "\n".join(
            [
                logged.format("1,000", "Job a (b) switched from state CREATED to RUNNING."),
                logged.format("3,000", "Completed checkpoint 1 for job b (7 bytes)"),
                logged.format("8,000", "Completed checkpoint 2 for job b (7 bytes)"),
            ]
        )
    )
    said = '1> {}[["out","2026-11-16 00:00:0{}","{}"]]'
    (one.place / "output").write_text(
        "\n".join([said.format("+I", "2.5", 4), said.format("-U", "4", 4), said.format("+U", "4.0", 6)])
    )
    seen = one.seen()
    assert seen.ready is not None
    assert [(commit.at - seen.ready, commit.newest) for commit in seen.commits] == [(2.0, 4), (7.0, 6)]


class Sleeper(Follower):
    name, system, committed = "sleeper", "sh", "said"

    def command(self, parallelism: int) -> tuple[Sequence[str], Mapping[str, str]]:
        return ["sh", "-c", f'echo \'{{"ready": 1}}\' > "$TOLD"; sleep {parallelism}0 & wait'], {
            "TOLD": str(self.place / "told")
        }

    def seen(self) -> Seen:
        return told(self.place / "told")


def test_a_kill_ends_the_whole_group(tmp_path: Path) -> None:
    one = Sleeper(tmp_path, tmp_path, 1)
    one.start(6)
    one.wait(lambda seen: seen.ready == 1, 10.0, "life")
    assert one.process is not None
    group = one.process.pid
    one.kill()
    assert one.process.returncode == -signal.SIGKILL
    listed = subprocess.run(["ps", "-o", "pid=,stat=", "-g", str(group)], capture_output=True, text=True)
    assert not [line for line in listed.stdout.splitlines() if "Z" not in line.split()[1]]
    with pytest.raises(RuntimeError, match="did not come to another life"):
        one.wait(lambda seen: False, 10.0, "another life")
