"""A certificate for localhost, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def made_certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a certificate that signs itself, and of its key; skips the test without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    more = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", str(cert), "-keyout", str(key)]
    subprocess.run([*command, *more], check=True, capture_output=True)
    return cert, key
