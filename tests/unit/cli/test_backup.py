"""backup and restore, from the command line."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.ponds import ask, ask_json, make


def totals(path: str) -> dict[str, int]:
    return {r["shop"]: r["total"] for r in ask_json("read", path, "by_shop")["rows"]}


def test_a_pond_is_backed_up_and_restored(tmp_path: Path) -> None:
    path, target, other = make(tmp_path / "pond"), str(tmp_path / "copies"), str(tmp_path / "again")
    done = ask_json("backup", path, target, "--verify")
    assert done["verified"] and done["copied_files"] == done["files"] > 0
    assert ask_json("backup", path, target)["copied_files"] == 0
    made = ask_json("restore", target, other)
    assert (made["epoch"], made["pond"]) == (done["epoch"], done["pond"])
    assert totals(other) == totals(path) == {"a": 11, "b": 2}


def test_an_older_epoch_and_a_new_id(tmp_path: Path) -> None:
    path, target, other = make(tmp_path / "pond"), str(tmp_path / "copies"), str(tmp_path / "again")
    done = ask_json("backup", path, target, "--epoch", "start")
    ask_json("backup", path, target)
    made = ask_json("restore", target, other, "--epoch", str(done["epoch"]), "--new-id")
    assert made["epoch"] == done["epoch"] and made["pond"] != done["pond"]
    assert totals(other) == {"a": 1, "b": 2}


def test_people_read_what_was_done(tmp_path: Path) -> None:
    path, target, other = make(tmp_path / "pond"), str(tmp_path / "copies"), str(tmp_path / "again")
    said = ask("backup", path, target, "--verify").out
    assert f"is in {target}: copied " in said and "read again and is intact" in said
    assert f"{other} continues from epoch 3" in ask("restore", target, other).out


def test_exit_codes(tmp_path: Path) -> None:
    path, target, other = make(tmp_path / "pond"), str(tmp_path / "copies"), str(tmp_path / "again")
    assert ask("restore", str(tmp_path / "nothing"), other).code == 2
    assert ask("backup", str(tmp_path / "nothing"), target).code == 2
    ask("backup", path, target)
    assert ask("restore", target, path).code == 3, "there is a pond"
    for run in Path(target, "runs").rglob("*"):
        if run.is_file():
            run.write_bytes(b"x")
    damaged = ask("backup", path, target, "--verify")
    assert damaged.code == 5 and "is damaged" in damaged.err
    assert ask("restore", target, other).code == 5
    assert ask("read", target, "by_shop").code == 2
