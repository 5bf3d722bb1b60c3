"""The TLS context of a server."""

from __future__ import annotations

import ssl

from millpond.errors import InvalidError
from millpond.server.settings import ServeSettings


def tls_context(settings: ServeSettings) -> ssl.SSLContext | None:
    """The certificate and key to show to clients; None if the server has none."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidError(
            "the TLS certificate or its key cannot be used",
            detail=f"{type(error).__name__}: {error}",
            hint="both are files in PEM format, and the key has no password",
        ) from error
    return context
