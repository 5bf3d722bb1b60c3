"""Checks for S3 credentials before the first request.

Without credentials, the library asks the metadata service of a cloud instance; where there is none, that
takes minutes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from millpond.errors import InvalidError

METADATA_HOST = "169.254.169.254"
METADATA = (METADATA_HOST, 80)
WAIT_S = 1.0
_OPTIONS = {
    "access_key_id",
    "container_credentials_full_uri",
    "container_credentials_relative_uri",
    "metadata_endpoint",
    "skip_signature",
    "web_identity_token_file",
}
HINTS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment (profiles under ~/.aws are not "
    'read), or pass store_options={"access_key_id": …, "secret_access_key": …}; for a public bucket '
    'store_options={"skip_signature": True}',
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS in the environment to the file of a service account",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY in the environment",
}


def hint_for(scheme: str) -> str:
    return next((text for start, text in HINTS.items() if scheme.startswith(start)), HINTS["az"])


def has_credentials(options: Mapping[str, object]) -> bool:
    """Do these options or the environment define credentials?"""
    names = {name.lower().removeprefix("aws_") for name in options}
    names |= {name.lower().removeprefix("aws_") for name in os.environ if name.startswith("AWS_")}
    return bool(names & _OPTIONS)


def require_role(uri: str) -> None:
    """Raise InvalidError unless this machine is a cloud instance, which may have a role."""
    if not _has_metadata():
        raise InvalidError(
            f"there are no credentials for {uri}",
            detail="AWS_ACCESS_KEY_ID is not set, and this machine has no role of its own",
            hint=HINTS["s3"],
        )


def _has_metadata() -> bool:
    try:
        with socket.create_connection(METADATA, WAIT_S):
            return True
    except OSError:
        return False
