"""The example of the page on PostgreSQL runs, against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_source_pages import CONNECTORS, run_page

from .server import Database

pytestmark = pytest.mark.e2e


def test_the_page_runs(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database.run(
        "CREATE TABLE customers (id INT PRIMARY KEY, country TEXT)",
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount NUMERIC(10, 2))",
        "INSERT INTO customers VALUES (1, 'fr'), (2, 'it')",
        "INSERT INTO orders VALUES (1, 1, 5), (2, 1, 7.5), (3, 2, 1)",
    )
    monkeypatch.chdir(tmp_path)
    given = {"postgresql://ann:${env:PGPASSWORD}@localhost/shop": database.address}
    run_page(CONNECTORS / "postgres-cdc.md", monkeypatch, given)
    assert "[('fr', Decimal('12.50')), ('it', Decimal('1.00'))]" in capsys.readouterr().out
