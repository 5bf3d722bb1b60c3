"""Java is the one thing pip does not bring: what is found is judged, what is missing is explained."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from millpond.engine.spark.session import (
    COMPILE_LATER,
    JAVA_ENVIRONMENT,
    JAVA_OPTIONS,
    OLD_EVERY,
    SMALL_HEAP,
    check_java,
    heap_settings,
    install_command,
    java_version,
    settings_for,
)
from millpond.errors import InvalidError

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15'
ORACLE_8 = 'java version "1.8.0_392"'


def put_java(folder: Path, told: str, code: int = 0) -> Path:
    """A `java` in this folder that prints its version as Java does: to stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\n[ \"$1\" = -version ] || exit 9\necho '{told}' >&2\nexit {code}\n")
    script.chmod(0o755)
    return script


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with one empty folder and no JAVA_HOME."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


@pytest.mark.parametrize(("told", "version"), [(OPENJDK_17, 17), ('openjdk version "21" 2023-09-19', 21)])
def test_a_java_that_fits(bare: Path, told: str, version: int) -> None:
    put_java(bare, told)
    assert check_java() == version


def test_no_java_says_how_to_get_it(bare: Path) -> None:
    with pytest.raises(InvalidError, match="no java on PATH") as caught:
        check_java()
    assert "\n" not in caught.value.message
    assert str(caught.value.hint).startswith("install it with: ")


def test_an_old_java_shows_both_numbers(bare: Path) -> None:
    java = put_java(bare, ORACLE_8)
    with pytest.raises(InvalidError, match="needs java 17 or newer, and this is java 8") as caught:
        check_java()
    assert caught.value.detail == f"found 8 at {java}"


def test_java_home_goes_before_path(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(bare, ORACLE_8)
    put_java(tmp_path / "home" / "bin", OPENJDK_17)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert check_java() == 17


def test_a_java_home_without_java_is_named(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(bare, OPENJDK_17)  # not what Spark would start
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(InvalidError, match="cannot be run") as caught:
        check_java()
    assert f"JAVA_HOME={tmp_path / 'gone'}" in str(caught.value.detail)
    assert str(caught.value.hint).startswith("unset JAVA_HOME, or install it with: ")


def test_a_java_that_says_nothing_of_use(bare: Path) -> None:
    put_java(bare, "Unable to locate a Java Runtime.", code=1)  # what macOS ships in its place
    with pytest.raises(InvalidError, match="does not say its version") as caught:
        check_java()
    assert caught.value.detail == "exit code 1: Unable to locate a Java Runtime."


@pytest.mark.parametrize(
    ("told", "version"),
    [(OPENJDK_17, 17), (ORACLE_8, 8), ('openjdk version "11.0.2"', 11), ('"25-ea"', None), ("", None)],
)
def test_versions_as_java_prints_them(told: str, version: int | None) -> None:
    assert java_version(told) == version


@pytest.mark.parametrize(
    ("platform", "tools", "command"),
    [
        ("linux", {"apt-get", "dnf"}, "sudo apt-get install -y openjdk-17-jre-headless"),
        ("linux", {"dnf"}, "sudo dnf install"),
        ("linux", {"apk"}, "sudo apk add"),
        ("linux", set(), "https://adoptium.net"),
        ("darwin", {"brew"}, "brew install openjdk@17"),
        ("win32", set(), "winget install"),
    ],
)
def test_the_install_command_of_each_platform(platform: str, tools: set[str], command: str) -> None:
    assert command in install_command(platform, lambda tool: tool if tool in tools else None)


def test_the_hint_is_for_this_platform(bare: Path) -> None:
    (bare / "apt-get").write_text("#!/bin/sh\n")
    (bare / "apt-get").chmod(0o755)
    with pytest.raises(InvalidError) as caught:
        check_java()
    want = "apt-get" if sys.platform == "linux" else "install"
    assert want in str(caught.value.hint)


@pytest.mark.parametrize(
    ("master", "theirs", "environment", "small"),
    [
        ("local[2]", "", {}, True),
        ("local", "-Xss4m", {"JDK_JAVA_OPTIONS": "-Xlog:gc"}, True),
        ("local[5]", "", {}, False),
        ("local-cluster[2,1,1024]", "", {}, False),
        ("spark://host:7077", "", {}, False),
        ("local[2]", "-XX:+UseG1GC -Xss4m", {}, False),
        ("local[2]", "", {"JAVA_TOOL_OPTIONS": "-XX:+UseParallelGC"}, False),
        ("local[2]", "-XX:+UseStringDeduplication", {}, True),
    ],
)
def test_few_cores_have_a_small_heap_unless_somebody_chose_a_collector(
    master: str, theirs: str, environment: dict[str, str], small: bool
) -> None:
    """Java does not start with two collectors; of other options the last word counts, which is the user's."""
    made = heap_settings(master, theirs, environment)
    assert (SMALL_HEAP in made[JAVA_OPTIONS]) is small
    assert (OLD_EVERY.items() <= made.items()) is small
    assert made[JAVA_OPTIONS].endswith(theirs)
    assert COMPILE_LATER in made[JAVA_OPTIONS]


def test_the_users_own_settings_are_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in JAVA_ENVIRONMENT:
        monkeypatch.delenv(one, raising=False)
    (name,) = OLD_EVERY
    made = settings_for("local[2]", {JAVA_OPTIONS: "-Xmn200m", name: "1h", "spark.ui.enabled": "true"})
    assert made[JAVA_OPTIONS].endswith(f"{SMALL_HEAP} -Xmn200m")
    assert (made[name], made["spark.ui.enabled"]) == ("1h", "true")
