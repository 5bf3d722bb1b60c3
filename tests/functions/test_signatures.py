"""What PostgreSQL's functions and operators take, as the product knows it, is what is recorded of them."""

from __future__ import annotations

from tests.functions import signatures


def test_the_file_is_up_to_date() -> None:
    assert signatures.FILE.read_text("utf-8") == signatures.text(), "python -m tests.functions.signatures"
