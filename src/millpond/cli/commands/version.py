"""`millpond version`: shows the installed versions, for bug reports."""

from __future__ import annotations

import importlib.metadata
import platform

import millpond
from millpond.cli.arguments import TEXT, OutputOption
from millpond.cli.output import FactsPart
from millpond.engine.spark.session import check_java
from millpond.errors import InvalidError

PACKAGES = ("pyspark", "pyarrow", "duckdb", "numpy")


def version(output: OutputOption = TEXT) -> None:
    """Show the versions of Millpond, Python and the main dependencies."""
    try:
        java = str(check_java())
    except InvalidError as error:  # that there is none is an answer, too
        java = error.message
    output.write(
        FactsPart(
            {
                "millpond": millpond.__version__,
                "python": platform.python_version(),
                "java": java,
                **{name: importlib.metadata.version(name) for name in PACKAGES},
            }
        )
    )
