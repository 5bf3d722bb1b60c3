"""HTTP and Flight SQL over TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

import millpond
from tests.serving.certificates import made_certificate

dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return made_certificate(tmp_path)


def test_http_and_flight_over_tls(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with (
        millpond.open("memory://", engine="inline") as pond,
        pond.serve(http_port=0, flight_port=0, tls_cert=cert, tls_key=key) as server,
    ):
        http, flight = server.urls["http"], server.urls["flight"]
        assert http.startswith("https://") and flight.startswith("grpc+tls://")
        trusted = ssl.create_default_context(cafile=str(cert))
        answer = httpx.post(f"{http}/v1/sql", json={"sql": "SELECT 1 AS x"}, verify=trusted, timeout=60)
        assert answer.json()["rows"] == [{"x": 1}]
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{http}/health", timeout=60)  # the certificate is not trusted
        options = {"adbc.flight.sql.client_option.tls_root_certs": cert.read_text()}
        with dbapi.connect(flight, db_kwargs=options, autocommit=True) as made, made.cursor() as cursor:
            cursor.execute("SELECT 2")
            assert cursor.fetchall() == [(2,)]
