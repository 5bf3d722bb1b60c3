"""A text of megabytes costs its client time, and the others nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import millpond
from millpond.kernels.sql_pictures import SHOWN_MAX, picture
from millpond.masking import MASK
from millpond.server.audit import KEPT_MAX
from millpond.server.client_session import TEXT_MAX
from millpond.server.pgwire import conversation
from millpond.server.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int); INSERT INTO t VALUES (1); FLUSH")
        with pond.serve(pg_port=0) as found:
            yield found


def connected(server: Server) -> Any:
    return psycopg.connect(server.urls["pg"].replace("//", "//ann@"), autocommit=True)


@pytest.mark.parametrize("params", [None, [1]], ids=["simple", "extended"])
def test_others_are_answered_while_it_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch, params: list[int] | None
) -> None:
    began, go_on, real = threading.Event(), threading.Event(), conversation.fragments_of

    def slow(text: str, dialect: str) -> Any:
        if "xxxx" in text:
            began.set()
            assert go_on.wait(30)
        return real(text, dialect)

    monkeypatch.setattr(conversation, "fragments_of", slow)
    found: list[Any] = []

    def ask() -> None:
        with connected(server) as con:
            mark = "1" if params is None else "%s::int"
            found.append(con.execute(f"SELECT {mark}, length('{'x' * 100_000}')", params).fetchone())

    thread = threading.Thread(target=ask)
    thread.start()
    assert began.wait(30)
    with connected(server) as con:
        assert con.execute("SELECT 2").fetchone() == (2,)
    go_on.set()
    thread.join(30)
    assert found == [(1, 100_000)]


def test_an_error_shows_the_begin_of_it(server: Server) -> None:
    with connected(server) as con, pytest.raises(psycopg.errors.UndefinedColumn) as caught:
        con.execute(f"SELECT nope, '{'x' * 100_000}'")
    assert caught.value.diag.statement_position == "8"
    assert len(str(caught.value.diag.message_detail or "")) < SHOWN_MAX


def test_pictures_of_long_texts_are_short_and_bare_no_secret() -> None:
    end = "x" * SHOWN_MAX
    for at in (None, (7, 4), (SHOWN_MAX, 4)):
        shown = picture(f"SELECT nope WITH (password = 'hunter2', a = '{end}')", at)
        assert len(shown) < 2.5 * SHOWN_MAX and "hunter2" not in shown and MASK in shown
    assert picture(f"SELECT nope, '{end}'", (7, 4)).splitlines()[1] == " " * 11 + "^^^^"
    assert "hunter" not in picture(f"CREATE USER u PASSWORD '{'hunter' * SHOWN_MAX}'", None)


def test_the_audit_keeps_the_begin_of_it(server: Server) -> None:
    audit = server.serving.statements.audit
    audit.ran(("ann", "pg", ""), "SELECT", "y" * 1_000_000, None, 0.0)
    kept = [key[2] for key in audit._waiting if key[2].startswith("yyy")]
    assert kept in ([], ["y" * KEPT_MAX])  # or it was written just now
    with connected(server) as con:
        (text,) = con.execute("SELECT statement FROM millpond.audit WHERE statement LIKE 'yyy%'").fetchone()
    assert 1000 < len(text) < KEPT_MAX


def test_longer_ones_are_refused(server: Server) -> None:
    text = f"SELECT length('{'x' * TEXT_MAX}')"
    with connected(server) as con:
        for params in (None, [1]):
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="pass large values as parameters"):
                con.execute(text + (", %s" if params else ""), params)
        assert con.execute("SELECT length(%s)", ["x" * TEXT_MAX * 2]).fetchone() == (TEXT_MAX * 2,)
