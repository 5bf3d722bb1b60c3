"""Jars from Maven, with all that they need, kept in a folder of their own.

Law: a folder under its final name is complete. What Maven cannot bring is an error that says what it said.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks import data

_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>millpond</groupId><artifactId>wanted</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
_ONE = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


class MissingError(Exception):
    """Something cannot be had here; the text says what and why."""


def dependencies(name: str, *artifacts: str) -> Path:
    """The folder with these artifacts (group:name:version) and what they need; fetched on first use."""
    folder = data.scratch() / "jars" / name
    if folder.exists():
        return folder
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise MissingError(f"{tool} is not installed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        wanted = "".join(_ONE.format(*artifact.split(":")) for artifact in artifacts)
        Path(place, "pom.xml").write_text(_POM.format(wanted))
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        done = subprocess.run([*copy, "-DoutputDirectory=libs"], cwd=place, capture_output=True, text=True)
        if done.returncode:
            told = re.search(r"Could not .*?(?= -> |\n)", done.stdout)
            why = told[0] if told else done.stdout[-600:]
            raise MissingError(f"Maven did not bring {artifacts[0]}: {why}")
        try:
            Path(place, "libs").rename(folder)
        except OSError:
            if not folder.exists():  # else somebody else was faster
                raise
    return folder
