"""Clients that are fetched on first use: from npm and from Maven; a test is skipped where they cannot be had."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from benchmarks import data
from benchmarks.maven import MissingError, dependencies


def node_modules(package: str) -> Path:
    """The folder in which node finds a package."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder: Path = data.scratch() / "node" / package
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", place, package]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                pytest.skip(f"npm did not bring {package} in time")
            if done.returncode:
                pytest.skip(f"npm did not bring {package}: {done.stderr[-300:]}")
            Path(place, "node_modules").rename(folder)
    return folder


def jars(name: str, *artifacts: str) -> list[Path]:
    """The jars of some artifacts of Maven."""
    try:
        return sorted(dependencies(name, *artifacts).glob("*.jar"))
    except MissingError as missing:
        pytest.skip(str(missing))
