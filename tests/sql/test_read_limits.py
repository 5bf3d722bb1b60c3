"""What a SELECT may use: memory, disk, time, rows; and that Ctrl-C ends it."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

import millpond
from millpond import Pond
from millpond.errors import InvalidError
from millpond.kernels import duck, spill
from millpond.settings import Settings
from millpond.sql.reads import limits
from tests.waiting import until

SOURCE = Path(millpond.__file__).parent
SORT = (
    "SELECT count(*), max(length(t)) FROM (SELECT hash(i) AS h, repeat('x', 40) || i AS t "
    "FROM range(2000000) r(i) ORDER BY h OFFSET 1)"
)
FOR_EVER = "SELECT count(*) FROM big a, big b, big c WHERE a.k * b.k % 7 = c.k"


@pytest.fixture(scope="module")
def pond() -> Iterator[Pond]:
    with millpond.open("memory://", engine="inline", select_memory_bytes_max=100 << 20) as made:
        made.sql("CREATE TABLE big (k bigint PRIMARY KEY, s text)")
        made.sql("INSERT INTO big SELECT i, 'row ' || i FROM range(100000) r(i); FLUSH")
        yield made


def refused(pond: Pond, sql: str, **limits: int) -> str:
    with pytest.raises(InvalidError) as told:
        pond.sql(sql, **limits)
    assert pond.sql("SELECT count(*) FROM big").fetchall() == [(100_000,)]  # the next one is answered
    return str(told.value)


def test_memory(pond: Pond) -> None:
    told = refused(pond, "SELECT list(s) FROM big, range(200)")
    assert "needs more than 100 MiB of memory" in told and "select_memory_bytes_max" in told


def test_what_does_not_fit_goes_to_disk_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(spill.spill_folder()).parent
    there = set(folder.iterdir())
    with millpond.open("memory://", engine="inline", select_memory_bytes_max=60 << 20) as pond:
        assert pond.sql(SORT).fetchall() == [(1_999_999, 47)]
        spilled = set(folder.iterdir()) - there
        assert spilled, "it did not fit"
        assert not [f for s in spilled for f in s.iterdir() if not f.name.endswith("_owner")]
    assert not [*tmp_path.iterdir()] and set(folder.iterdir()) == there


def test_disk(pond: Pond) -> None:
    told = refused(
        pond,
        SORT,
        select_spill_bytes_max=1 << 20,
        select_memory_bytes_max=60 << 20,
    )
    assert "needs more than 1 MiB of disk" in told and "select_spill_bytes_max" in told


def test_time(pond: Pond) -> None:
    started = time.monotonic()
    told = refused(pond, FOR_EVER, select_ms_max=200)
    assert "took longer than 0.2 s" in told and "select_ms_max" in told
    assert time.monotonic() - started < 30


def test_rows(pond: Pond) -> None:
    told = refused(pond, "SELECT * FROM big", select_rows_max=1000)
    assert "more than 1000 rows" in told and "select_rows_max" in told
    assert pond.sql("SELECT * FROM big LIMIT 1000", select_rows_max=1000).arrow().num_rows == 1000


def test_a_result_that_is_too_large(pond: Pond) -> None:
    told = refused(pond, "SELECT a.k, b.k FROM big a, big b")
    assert "larger than 100 MiB" in told and "select_memory_bytes_max" in told


def test_limits_of_a_call_are_for_that_call(pond: Pond) -> None:
    refused(pond, "SELECT * FROM big", select_rows_max=1)
    assert pond.sql("SELECT * FROM big").arrow().num_rows == 100_000
    with pytest.raises(InvalidError, match="no argument 'select_rows'"):
        pond.sql("SELECT 1", select_rows=1)
    with pytest.raises(InvalidError, match="'select_ms_max' cannot be -1"):
        pond.sql("SELECT 1", select_ms_max=-1)


def test_a_new_pond_has_limits_too() -> None:
    with millpond.open("memory://", engine="inline", select_rows_max=2) as pond:
        assert pond.sql("VALUES (1), (2)").arrow().num_rows == 2
        with pytest.raises(InvalidError, match="more than 2 rows"):
            pond.sql("VALUES (1), (2), (3)")


def test_ctrl_c_ends_a_select(pond: Pond) -> None:
    def press_when_it_runs() -> None:
        until(lambda: any(thread.name == limits.THREAD for thread in threading.enumerate()))
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press_when_it_runs)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        pond.sql(FOR_EVER)
    presser.join()
    assert pond.sql("SELECT 42").fetchall() == [(42,)]


def test_rows_that_are_kept_once_are_repeated_part_by_part(pond: Pond) -> None:
    """Equal rows of a bag are one row with a count: 8 million of these would be 800 MB."""
    pond.sql(
        "CREATE TABLE bag (s text); CREATE MATERIALIZED VIEW many AS SELECT a.s FROM bag a, bag b, bag c"
    )
    pond.sql("CREATE MATERIALIZED VIEW more AS SELECT m.s FROM many m, bag b")
    pond.sql("INSERT INTO bag SELECT repeat('x', 100) FROM range(200); FLUSH")
    assert pond.sql("SELECT count(*), min(s) = max(s) FROM many").fetchall() == [(8_000_000, True)]
    assert pond.sql("SELECT count(*) FROM many WHERE s = repeat('x', 100)").fetchall() == [(8_000_000,)]
    assert pond.sql("SELECT s FROM more LIMIT 3").arrow().num_rows == 3
    assert "larger than 100 MiB" in refused(pond, "SELECT s FROM more")
    with pytest.raises(InvalidError, match="1600000000 rows do not fit into one table"):
        pond.read("more")
    pond.sql("DROP TABLE bag CASCADE")


def test_a_process_that_was_killed_leaves_no_folder(tmp_path: Path) -> None:
    code = (
        "import os, signal, pathlib\n"
        "from millpond.kernels.spill import spill_folder\n"
        "made = pathlib.Path(spill_folder()); made.mkdir(); (made / 'block').write_bytes(b'x')\n"
        "print(made.parent, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    left = Path(killed.stdout.strip())
    assert killed.returncode == -signal.SIGKILL and (left / "0" / "block").exists()
    alive = subprocess.Popen(
        [sys.executable, "-c", code.replace("os.kill(os.getpid(), signal.SIGKILL)", "input()")],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert alive.stdout is not None
    theirs = Path(alive.stdout.readline().strip())
    assert not left.exists() and theirs.exists()
    spill.remove_left(tmp_path)
    assert theirs.exists(), "its process is alive"
    alive.communicate("\n")
    assert not theirs.exists(), "a process that ends removes its own"


def test_every_database_is_without_a_progress_bar() -> None:
    made = [
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "duckdb.connect"
    ]
    assert made == ["kernels/duck.py"]
    con = duck.connect({"threads": 1, "enable_external_access": False})
    asked = "current_setting('enable_progress_bar'), current_setting('enable_external_access')"
    assert con.execute(f"select {asked}").fetchall() == [(False, False)]
    (folder,) = con.execute("select current_setting('temp_directory')").fetchone() or ("",)
    assert Path(folder).parent.name.startswith(spill.PREFIX)


def test_a_query_that_is_cancelled_before_it_begins_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C can come before the thread has the work: nothing waits for a query that will not begin."""
    jobs: list[Callable[[], None]] = []

    def interrupted(job: Callable[[], None]) -> None:
        jobs.append(job)
        raise KeyboardInterrupt

    monkeypatch.setattr(limits, "_start", interrupted)
    ran: list[bool] = []
    limit = limits.ReadLimits.of(Settings(), {})
    with pytest.raises(KeyboardInterrupt):
        limits.limited(duckdb.connect(), limit, lambda: ran.append(True))
    jobs[0]()
    assert not ran


def test_threads_of_reads_are_used_again() -> None:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (n int)")
        for _ in range(50):
            pond.sql("SELECT n FROM t")
    named = [thread for thread in threading.enumerate() if thread.name.startswith(limits.THREAD)]
    assert len(named) <= limits.IDLE_MAX + 1
