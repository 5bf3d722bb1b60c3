"""The wheel has every package under src, so that Spark finds the format after `pip install`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pyspark.sql.datasource import DataSource

import pyspark_millpond

ROOT = Path(__file__).parents[3]


def test_the_wheel_has_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {ROOT / package for package in packages} == {
        p.parent for p in (ROOT / "src").glob("*/__init__.py")
    }


def test_spark_finds_the_format() -> None:
    """Spark imports the packages named `pyspark_*` and takes their `DefaultSource`."""
    assert issubclass(pyspark_millpond.DefaultSource, DataSource)
    assert pyspark_millpond.DefaultSource.name() == "millpond"
