"""Certificates of servers on this machine, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.maven import MissingError


def make_authority(folder: Path, name: str) -> Path:
    """A certificate that signs others; its key is beside it."""
    made = folder / f"{name}.pem"
    names = ["-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE"]
    _openssl("req", "-x509", *_new(folder / f"{name}.key"), "-days", "2", *names, "-out", str(made))
    return made


def make_certificate(folder: Path, authority: Path) -> tuple[Path, Path]:
    """The key and the certificate of 127.0.0.1."""
    key, asked, made, facts = (folder / f"server.{kind}" for kind in ("key", "csr", "crt", "ext"))
    facts.write_text("subjectAltName=IP:127.0.0.1")
    _openssl("req", *_new(key), "-subj", "/CN=127.0.0.1", "-out", str(asked))
    signer = ["-CA", str(authority), "-CAkey", str(authority.with_suffix(".key")), "-CAcreateserial"]
    request = ["-req", "-in", str(asked), "-days", "2", "-extfile", str(facts)]
    _openssl("x509", *request, *signer, "-out", str(made))
    return key, made


def _new(key: Path) -> list[str]:
    return ["-newkey", "rsa:2048", "-nodes", "-keyout", str(key)]


def _openssl(*arguments: str) -> None:
    if shutil.which("openssl") is None:
        raise MissingError("openssl is not installed")
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise MissingError(f"openssl failed: {done.stderr[-400:]}")
