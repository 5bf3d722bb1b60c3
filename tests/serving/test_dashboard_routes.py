"""The routes of the dashboard without a browser: files, headers, permissions and events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import millpond
from millpond.server.dashboard.dashboard_assets import BYTES_MAX, assets


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with millpond.open(tmp_path_factory.mktemp("served") / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (k int PRIMARY KEY, x int); INSERT INTO t VALUES (1, 1); FLUSH")
        with (
            pond.serve(http_port=0) as server,
            httpx.Client(base_url=server.urls["http"], timeout=30) as made,
        ):
            yield made


def test_all_files_are_small_and_name_no_other_site() -> None:
    found = assets()
    assert sum(len(one.body) for one in found.values()) < BYTES_MAX
    for name, one in found.items():
        urls = set(re.findall(r"https?://[^\s\"'`]+", one.body.decode()))
        assert urls <= {"http://www.w3.org/2000/svg"}, name


def test_the_page_is_protected_by_its_headers(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert client.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    for name in re.findall(r"dashboard/[\w.]+", page.text):
        assert client.get(f"/{name}").status_code == 200, name


def test_files_outside_the_folder_are_not_sent(client: httpx.Client) -> None:
    for name in ("routes.py", "..%2froutes.py", "%2e%2e/routes.py", "nothing.js"):
        assert client.get(f"/dashboard/{name}").status_code == 404, name


def test_events_begin_with_the_newest_epoch(client: httpx.Client) -> None:
    epoch = client.get("/dashboard/info").json()["epoch"]
    with client.stream("GET", "/dashboard/events") as events:
        lines = events.iter_lines()
        assert next(line for line in lines if line.startswith("data:")) == f"data: {epoch}"


def test_actions(client: httpx.Client, tmp_path: Path) -> None:
    done = client.post("/dashboard/actions/savepoint", json={"name": "one"})
    assert done.status_code == 200 and done.json()["done"].startswith("savepoint one is epoch")
    assert client.post("/dashboard/actions/rescale", json={"parallelism": 2}).status_code == 200
    assert client.post("/dashboard/actions/rollback", json={"epoch": "one"}).status_code == 200
    assert client.post("/dashboard/actions/fork", json={"path": str(tmp_path / "f")}).status_code == 200
    assert client.post("/dashboard/actions/drop_savepoint", json={"name": "one"}).status_code == 200


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("rescale", {"parallelism": "many"}),
        ("rescale", {"parallelism": 0}),
        ("rescale", []),
        ("rollback", {"epoch": 999}),
        ("rollback", {}),
        ("savepoint", {"name": " "}),
        ("explode", {}),
    ],
)
def test_wrong_actions_are_refused(client: httpx.Client, name: str, fields: object) -> None:
    answer = client.post(f"/dashboard/actions/{name}", json=fields)
    assert answer.status_code == 400 and answer.json()


def test_another_site_cannot_act(client: httpx.Client) -> None:
    form = client.post(
        "/dashboard/actions/rescale", content='{"parallelism": 3}', headers={"Content-Type": "text/plain"}
    )
    assert form.status_code == 415
    other = client.post(
        "/dashboard/actions/rescale", json={"parallelism": 3}, headers={"Origin": "http://evil.example"}
    )
    assert other.status_code == 403
    assert client.get("/dashboard/info").json()["parallelism"] != 3
