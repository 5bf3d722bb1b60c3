"""Every version of every stored format that a release ever wrote is in some golden pond."""

from __future__ import annotations

import functools
import json
import struct
import tarfile
from collections import defaultdict

import pytest

from millpond.control import lease
from millpond.plan import catalog_format
from millpond.state import access_rules, backup_record, inbox
from millpond.state.manifest import manifest, pins
from millpond.state.runs import packed
from tests.golden.make import HERE

NEWEST = {
    "access": access_rules.FORMAT,
    "backups": backup_record.FORMAT,
    "catalog": catalog_format.FORMAT,
    "inbox": inbox.FORMAT,
    "lease": lease.FORMAT,
    "manifests": manifest.FORMAT,
    "pages": manifest.FORMAT,
    "pins": pins.FORMAT,
    "runs": packed.VERSION,
}


@functools.cache
def versions() -> dict[str, set[int]]:
    """The versions in the golden ponds and backups, by folder.  JSON without the member `format` has version 1."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for path in HERE.glob("*/*.tar.xz"):
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                if member.isfile():
                    raw = archive.extractfile(member)
                    assert raw is not None
                    folder = member.name.split("/")[0]
                    found[folder] |= set(
                        version(raw.read()) if folder == "runs" else [json_format(raw.readline())]
                    )
    return found


def version(run: bytes) -> list[int]:
    """The version of a run file; the stored plan of a backfill is no run."""
    return [struct.unpack_from("<I", run, len(packed.MAGIC))[0]] if run.startswith(packed.MAGIC) else []


def json_format(line: bytes) -> int:
    return int(json.loads(line).get("format", 1))


@pytest.mark.parametrize("folder", NEWEST)
def test_every_version_of_a_format_is_in_a_golden_pond(folder: str) -> None:
    assert versions()[folder] == set(range(1, NEWEST[folder] + 1))
