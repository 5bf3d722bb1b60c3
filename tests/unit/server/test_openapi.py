"""The OpenAPI description is complete and refers only to schemas that it has."""

from __future__ import annotations

import json
import re

from millpond.server.http.endpoints import ENDPOINTS
from millpond.server.http.http_errors import STATUS
from millpond.server.http.openapi import SCHEMAS, description


def test_every_reference_has_its_schema() -> None:
    found = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(description())))
    assert found <= set(SCHEMAS)
    assert set(SCHEMAS) <= found, "every schema is used"


def test_path_parameters_are_described() -> None:
    for endpoint in ENDPOINTS:
        named = set(re.findall(r"\{(\w+)\}", endpoint.path))
        assert named == {p.name for p in endpoint.parameters if p.place == "path"}, endpoint.path
        assert all(p.required for p in endpoint.parameters if p.place == "path")


def test_endpoints_that_choose_a_format_say_what_they_refuse() -> None:
    for endpoint in ENDPOINTS:
        assert (406 in endpoint.errors) == (len(endpoint.answer_types) > 1), endpoint.path
        assert (415 in endpoint.errors) == (endpoint.body is not None), endpoint.path


def test_every_status_of_an_error_is_described_somewhere() -> None:
    listed = {status for endpoint in ENDPOINTS for status in endpoint.errors}
    assert {status for _, status in STATUS} <= listed
