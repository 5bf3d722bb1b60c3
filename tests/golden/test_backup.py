"""Access rules and a backup that older code wrote are read and restored by today's code."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import millpond
from millpond.clock import ManualClock
from millpond.server.scram import ScramVerifier
from millpond.state import access_rules
from tests.golden.make_backup import HERE, START_US

FORMS = sorted(folder.name for folder in HERE.glob("backup-*"))


def unpacked(form: str, name: str, folder: Path) -> Path:
    with tarfile.open(HERE / form / f"{name}.tar.xz") as archive:
        archive.extractall(folder / name, filter="data")
    return folder / name


@pytest.mark.parametrize("form", FORMS)
def test_the_rules_of_a_pond(form: str, tmp_path: Path) -> None:
    with millpond.open(unpacked(form, "pond", tmp_path), engine="inline", durable=False) as pond:
        rules = access_rules.read_rules(pond.store)
        assert rules.roles_of("ann") == {"ann", "readers"}
        assert rules.grants["readers"] == {"total": ("SELECT",)}
        assert ScramVerifier.parse(rules.roles["ann"].verifier or "") is not None
        pond.sql("REVOKE SELECT ON total FROM readers")
        assert not access_rules.read_rules(pond.store).grants.get("readers", {}).get("total")


@pytest.mark.parametrize("form", FORMS)
def test_a_backup_is_restored(form: str, tmp_path: Path) -> None:
    millpond.restore(unpacked(form, "backup", tmp_path), tmp_path / "restored")
    with millpond.open(
        tmp_path / "restored", engine="inline", clock=ManualClock(START_US), durable=False
    ) as pond:
        assert pond.sql("SELECT n, total FROM total").fetchall() == [(3, 60)]
        pond.sql("INSERT INTO orders VALUES (4, 40); FLUSH")
        assert pond.sql("SELECT n, total FROM total").fetchall() == [(4, 100)]
        pond.rollback("monday")
        assert pond.sql("SELECT n, total FROM total").fetchall() == [(2, 30)]
