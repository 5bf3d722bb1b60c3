"""`millpond package`: packs Millpond, its dependencies and your modules for the workers of a Spark cluster.

The archive is unpacked by Spark in the working folder of every executor, so the hosts need only the same
version of Python.  Spark itself is left out: the cluster has it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.arguments import TEXT, OutputOption
from millpond.cli.output import MessagePart
from millpond.errors import InvalidError

FOLDER = "millpond"  # in which Spark unpacks the archive
LEFT_OUT = frozenset({"pyspark", "py4j"})  # every Spark installation has them
_SKIPPED = ("__pycache__", ".pyc", ".pyi")


def package(
    archive: Annotated[
        Path,
        typer.Argument(metavar="ARCHIVE", help="The file to write, NAME.tar.gz.", show_default=False),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Python modules and package folders that your pipeline imports.",
            show_default=False,
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="DISTRIBUTION",
            help="Another installed distribution, with its dependencies; may be repeated.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = TEXT,
) -> None:
    """Pack Millpond, its dependencies and your modules for the workers of a Spark cluster."""
    if not archive.name.endswith((".tar.gz", ".tgz")):
        raise InvalidError("the archive must be named NAME.tar.gz", detail=f"got {archive}")
    members = dict(contents(files or [], include or []))
    with tarfile.open(archive, "w:gz", compresslevel=1) as made:
        for name, path in sorted(members.items()):
            made.add(path, name, recursive=False)
    size = archive.stat().st_size
    submit = submit_arguments(archive)
    facts = {"archive": str(archive), "files": len(members), "bytes": size, "arguments": submit}
    use = f"use it with\n  spark-submit {' '.join(submit)} …"
    text = f"{archive}: {len(members)} files, {size / 1e6:.1f} MB; {use}"
    output.write(MessagePart(text, facts))


def submit_arguments(archive: Path) -> list[str]:
    """The arguments of spark-submit, and of `millpond run`, with which executors use the archive."""
    return [
        "--conf",
        f"spark.archives={archive.absolute()}#{FOLDER}",
        "--conf",
        f"spark.executorEnv.PYTHONPATH=./{FOLDER}",
    ]


def contents(files: list[Path], include: list[str]) -> Iterator[tuple[str, Path]]:
    """The files of the archive: (name in it, path here)."""
    for distribution in sorted(distributions(["millpond", *include])):
        if distribution != "millpond":
            yield from _of_distribution(distribution)
    for name in ("millpond", "pyspark_millpond"):  # found, not imported: the second one would import Spark
        found = importlib.util.find_spec(name)
        assert found is not None and found.origin is not None
        folder = Path(found.origin).parent
        yield from _below(folder, folder.parent)
    for path in files:
        if not path.exists():
            raise InvalidError(f"{path} does not exist")
        yield from _below(path.absolute(), path.absolute().parent)


def distributions(names: list[str]) -> set[str]:
    """These distributions and everything that they require, as far as it is installed.

    >>> sorted(distributions(["obstore"]) & {"obstore", "pyspark"})
    ['obstore']
    """
    found: set[str] = set()
    waiting = [(name, True) for name in names]
    while waiting:
        name, asked = waiting.pop()
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in found or name in LEFT_OUT:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if asked and name != "millpond":
                raise InvalidError(
                    f"no distribution named {name!r} is installed", hint="pip install it, then pack it"
                ) from None
            continue
        found.add(name)
        for requirement in distribution.requires or ():
            wanted = re.match(r"[A-Za-z0-9._-]+", requirement)
            if wanted is not None and "extra ==" not in requirement:
                waiting.append((wanted[0], False))
    return found


def _of_distribution(name: str) -> Iterator[tuple[str, Path]]:
    for file in importlib.metadata.distribution(name).files or ():
        path = Path(str(file.locate()))
        inside = ".." not in file.parts and not str(file).endswith(_SKIPPED[1:])
        if inside and _SKIPPED[0] not in file.parts and path.is_file():
            yield str(file), path


def _below(path: Path, root: Path) -> Iterator[tuple[str, Path]]:
    for found in [path] if path.is_file() else sorted(path.rglob("*")):
        if found.is_file() and _SKIPPED[0] not in found.parts and not found.name.endswith(_SKIPPED[1:]):
            yield str(found.relative_to(root)), found
