"""CREATE SECRET: values are in one file that only its owner can read, and nowhere else."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond import masking
from millpond.cli.prompt import masked_lines
from millpond.errors import InvalidError, UnavailableError
from millpond.secret_references import check_references, resolved, resolved_address, secrets_from
from millpond.state.secret_files import SecretFiles
from millpond.state.store.memory_store import MemoryStore
from millpond.state.store.store import open_store

VALUE = "hunter2-is-the-secret"


@pytest.fixture(autouse=True)
def unknown() -> Iterator[None]:
    """Values of other tests are not masked."""
    before = set(masking._values)
    yield
    masking._values.clear()
    masking._values.update(before)


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[millpond.Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", durable=False) as found:
        found.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, n BIGINT)")
        found.drain()
        yield found


def files_with(folder: Path, value: str = VALUE) -> list[str]:
    found = [p for p in folder.rglob("*") if p.is_file() and value.encode() in p.read_bytes()]
    return [str(p.relative_to(folder)) for p in found]


def names(pond: millpond.Pond) -> list[str]:
    return [name for (name,) in pond.sql("SHOW SECRETS").fetchall()]


def test_create_show_replace_and_drop(pond: millpond.Pond, tmp_path: Path) -> None:
    assert names(pond) == []
    pond.sql(f"CREATE SECRET pg WITH (value = '{VALUE}')")
    pond.sql("CREATE SECRET other WITH (backend = 'meta') AS 'it''s text'")
    pond.sql("CREATE SECRET third AS 'x;y'")
    assert names(pond) == ["other", "pg", "third"]
    secrets = SecretFiles(open_store(str(tmp_path / "pond")))
    assert [secrets.value(n) for n in names(pond)] == ["it's text", VALUE, "x;y"]
    with pytest.raises(InvalidError, match="there is a secret named 'pg' already"):
        pond.sql("CREATE SECRET pg AS 'other'")
    pond.sql("CREATE SECRET IF NOT EXISTS pg AS 'other'")
    assert secrets.value("pg") == VALUE
    pond.sql("CREATE OR REPLACE SECRET pg AS 'rotated'")
    assert secrets.value("pg") == "rotated"
    pond.sql("DROP SECRET pg")
    assert names(pond) == ["other", "third"]
    with pytest.raises(InvalidError, match="no secret named 'pg'"):
        pond.sql("DROP SECRET pg")
    pond.sql("DROP SECRET IF EXISTS pg")


def test_only_the_owner_can_read_the_file(pond: millpond.Pond, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        pond.sql(f"CREATE SECRET pg AS '{VALUE}'")
    finally:
        os.umask(before)
    file = tmp_path / "pond" / "secrets" / "pg"
    assert oct(file.stat().st_mode)[-3:] == "600"
    assert oct(file.parent.stat().st_mode)[-3:] == "700"
    file.chmod(0o644)
    with pytest.raises(InvalidError, match="others can read secret 'pg'"):
        SecretFiles(open_store(str(tmp_path / "pond"))).value("pg")


def test_a_definition_stores_the_reference(pond: millpond.Pond, tmp_path: Path) -> None:
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("millpond").addHandler(handler)
    logging.getLogger("millpond").setLevel(logging.DEBUG)
    try:
        pond.sql(f"CREATE SECRET pg WITH (value = '{VALUE}')")
        pond.sql("""
            CREATE SINK copy FROM orders WITH (connector = 'postgres', table = 'orders', mode = 'upsert',
                connection = 'host=127.0.0.1 port=9 connect_timeout=1 password=${secret:pg}');
            CREATE SINK whole FROM orders WITH (connector = 'postgres', table = 'x', connection = secret pg);
            INSERT INTO orders VALUES (1, 2);
        """)
        pond.drain()
        with pytest.raises(UnavailableError):
            pond._runner.drain(settle=True)  # type: ignore[union-attr]
    except Exception as error:
        assert VALUE not in str(error)
    finally:
        logging.getLogger("millpond").removeHandler(handler)
    said = pond.sql("SHOW CREATE SINK whole").fetchall()[0][0]
    assert "connection = secret pg" in said
    shown = [said, pond.explain(), str(pond.sql("SHOW SINKS").fetchall()), str(pond.sinks()), log.getvalue()]
    shown += [str(pond.plan), repr(pond.plan.sinks["copy"].sink)]
    assert all(VALUE not in text for text in shown)
    assert files_with(tmp_path / "pond") == ["secrets/pg"]
    with pytest.raises(InvalidError, match="secret 'pg' is used") as error:
        pond.sql("DROP SECRET pg")
    assert "copy, whole" in str(error.value)


def test_a_secret_that_is_not_there_is_refused_at_definition(pond: millpond.Pond) -> None:
    pond.sql(f"CREATE SECRET pg AS '{VALUE}'")
    for option in ("secret pgg", "'password=${secret:pgg}'"):
        with pytest.raises(InvalidError, match="no secret named 'pgg'") as error:
            pond.sql(f"CREATE SINK s FROM orders WITH (connector='postgres', table='t', connection={option})")
        assert "did you mean 'pg'?" in str(error.value)
    with pytest.raises(InvalidError, match="no secret is found by"):
        pond.sql("CREATE SINK s FROM orders WITH (connector='postgres', table='t', connection='${vault:x}')")


def test_backups_and_forks_have_no_secrets(pond: millpond.Pond, tmp_path: Path) -> None:
    pond.sql(f"CREATE SECRET pg AS '{VALUE}'")
    pond.sql("CREATE SINK s FROM orders WITH (connector='postgres', table='t', connection=secret pg)")
    pond.drain()
    pond.backup(tmp_path / "backup")
    pond.fork(tmp_path / "fork")
    millpond.restore(tmp_path / "backup", tmp_path / "restored")
    for folder in ("backup", "fork", "restored"):
        assert files_with(tmp_path / folder) == []
    with millpond.open(tmp_path / "fork", engine="inline", durable=False) as fork:
        assert names(fork) == []
        fork.sql("ALTER SINK s ATTACH")
        fork.sql("INSERT INTO orders VALUES (5, 5)")
        with pytest.raises(InvalidError, match="sink 's' failed: no secret named 'pg'"):
            fork.drain()


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE SECRET WITH (value = '{VALUE}')",
        f"CREATE SECRET '{VALUE}'",
        f"CREATE SECRET pg '{VALUE}'",
        f"CREATE SECRET pg AS {VALUE.replace('-', '_')}",
        f"CREATE SECRET pg WITH (valeu = '{VALUE}')",
        f"CREATE SECRET pg WITH (value = '{VALUE}') AS 'more'",
        f"CREATE SECRET pg WITH (backend = '{VALUE}')",
        f"CREATE SECRET pg AS '{VALUE}' twice",
        f"CREATE SECRET \"a/b\" AS '{VALUE}'",
        f"CREATE SECRET pg AS '{VALUE}",
        f"CREATE SECRET pg AS E'{VALUE}\\0' x",
    ],
)
def test_errors_do_not_show_the_value(statement: str, pond: millpond.Pond) -> None:
    with pytest.raises(InvalidError) as error:
        pond.sql(statement)
    shown = str(error.value) + str(error.value.fields())
    assert VALUE not in shown and VALUE.replace("-", "_") not in shown
    assert names(pond) == []


def test_a_pond_that_is_not_in_a_folder_refuses_secrets() -> None:
    with millpond.Pond(MemoryStore(), engine="inline") as pond:
        pond.sql("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        with pytest.raises(InvalidError, match="stores no secrets"):
            pond.sql(f"CREATE SECRET pg AS '{VALUE}'")
        assert names(pond) == []
        with pytest.raises(InvalidError, match="stores no secrets"):
            pond.sql("CREATE SINK s FROM t WITH (connector='postgres', table='t', connection=secret pg)")


def test_values_that_were_read_are_masked_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PASSWORD", "p w'd/%")
    assert resolved("${env:A_PASSWORD}") == "p w'd/%"
    said = str(InvalidError("no", detail="invalid dsn near p w'd/% or p%20w%27d%2F%25"))
    assert said.count("***") == 2 and "p w" not in said


@pytest.mark.parametrize(
    "address",
    ["host=db password=hunter2-dsn x", "host=db password='hunter2-dsn'", "postgresql://a:hunter2-dsn@db/x"],
)
def test_the_password_of_a_whole_address_is_masked(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AN_ADDRESS", address)
    assert resolved_address("${env:AN_ADDRESS}") == address
    said = str(InvalidError("no", detail='missing "=" after "hunter2-dsn"'))
    assert "hunter2" not in said


def test_references_outside_of_a_pond() -> None:
    check_references("${secret:x}")
    with pytest.raises(InvalidError, match="secret 'x' cannot be read here"):
        resolved("${secret:x}")
    with secrets_from(lambda name: name.upper()):
        assert resolved("a=${secret:x}") == "a=X"
    with pytest.raises(InvalidError, match="the environment variable NOT_SET_HERE is not set"):
        resolved("${env:NOT_SET_HERE}")
    with pytest.raises(InvalidError, match="cannot be read"):
        resolved("${file:/does/not/exist}")


def test_the_history_of_the_prompt_has_no_values() -> None:
    lines = [
        "CREATE SECRET",
        "pg WITH (",
        f"value = '{VALUE}'",
        ");",
        "SELECT 1;",
        f"create secret a as '{VALUE}';",
    ]
    shown = list(masked_lines(lines))
    assert VALUE not in str(shown)
    assert shown[0] == "CREATE SECRET" and shown[4] == "SELECT 1;"
