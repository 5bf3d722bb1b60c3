"""Turns passwords and tokens into what may be stored of them.

Law: what is stored cannot be used to log in.  Verifiers are written as PostgreSQL writes them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

ITERATIONS = 4096


def verifier_text(password: str) -> str:
    """The SCRAM-SHA-256 verifier of a password, with a salt of its own.

    >>> verifier_text("secret").startswith("SCRAM-SHA-256$4096:")
    True
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    shown = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${ITERATIONS}:{shown[0]}${shown[1]}:{shown[2]}"


def token_digest(token: str) -> str:
    """What is stored of a token; tokens are random, so they need no salt."""
    return hashlib.sha256(token.encode()).hexdigest()
