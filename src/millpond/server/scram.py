"""SCRAM-SHA-256 (RFC 5802 and 7677): checks passwords of which only verifiers are stored.

Law: neither a password nor anything that logs in is derived from a stored verifier or written to a log.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from millpond.errors import InvalidError

ITERATIONS = 4096
MECHANISM = "SCRAM-SHA-256"
_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d+):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


@dataclass(frozen=True)
class ScramVerifier:
    """What a server stores instead of a password, written as PostgreSQL writes it.

    >>> made = ScramVerifier.of_password("secret")
    >>> ScramVerifier.parse(str(made)) == made, made.matches("secret"), made.matches("Secret")
    (True, True, False)
    """

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @staticmethod
    def of_password(password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> ScramVerifier:
        salt = secrets.token_bytes(16) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        return ScramVerifier(
            iterations,
            salt,
            hashlib.sha256(client_key).digest(),
            hmac.digest(salted, b"Server Key", "sha256"),
        )

    @staticmethod
    def parse(text: str) -> ScramVerifier | None:
        """Read a verifier; None if the text is none."""
        found = _VERIFIER.fullmatch(text)
        if found is None:
            return None
        try:
            salt, stored, server = (base64.b64decode(part, validate=True) for part in found.groups()[1:])
        except binascii.Error:
            return None
        return ScramVerifier(int(found[1]), salt, stored, server)

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"

    def matches(self, password: str) -> bool:
        made = ScramVerifier.of_password(password, self.salt, self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)


class ScramExchange:
    """One login: the client's first message, the server's challenge, the client's proof."""

    def __init__(self, verifier: ScramVerifier, nonce: str | None = None) -> None:
        self._verifier = verifier
        self._nonce = secrets.token_urlsafe(18) if nonce is None else nonce
        self._auth = ""
        self._header = ""

    def challenge(self, first: str) -> str:
        """The answer to the client's first message, `n,,n=…,r=nonce`."""
        flag, _, rest = first.partition(",")
        authorization, _, bare = rest.partition(",")
        fields = _fields(bare)
        if flag not in ("n", "y") or "r" not in fields or "m" in fields:
            raise InvalidError("the SCRAM message is malformed", detail="channel binding is not offered")
        self._header = f"{flag},{authorization},"
        self._nonce = fields["r"] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._auth = f"{bare},{server_first}"
        return server_first

    def proof(self, last: str) -> str | None:
        """Check the client's proof: the server's own signature, or None if the password is wrong."""
        without, separator, _ = last.rpartition(",p=")
        fields = _fields(last)
        header = base64.b64encode(self._header.encode()).decode()
        if not separator or fields.get("r") != self._nonce or fields.get("c") != header:
            return None
        try:
            proof = base64.b64decode(fields.get("p", ""), validate=True)
        except binascii.Error:
            return None
        message = f"{self._auth},{without}".encode()
        signature = hmac.digest(self._verifier.stored_key, message, "sha256")
        if len(proof) != len(signature):
            return None
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            return None
        return "v=" + base64.b64encode(hmac.digest(self._verifier.server_key, message, "sha256")).decode()


def _fields(text: str) -> dict[str, str]:
    return dict((part[:1], part[2:]) for part in text.split(",") if part[1:2] == "=")
