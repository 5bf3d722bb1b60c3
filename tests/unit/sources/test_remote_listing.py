"""A bucket with many objects: a poll asks only for names after the last one, and all are found in the end."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from millpond.sources import remote_listing
from millpond.sources.folder import Folder

PAGE = 1_000


class Bucket:
    """As much of S3 as a listing needs."""

    def __init__(self) -> None:
        self.names: dict[str, tuple[int, str]] = {}  # size and time
        self.asked: list[dict[str, str]] = []

    def put(self, *names: str, size: int = 7, time: str = "2026-11-18T10:00:00.125Z") -> None:
        self.names.update(dict.fromkeys((f"orders/{name}" for name in names), (size, time)))

    def answer(self, query: dict[str, str]) -> str:
        self.asked.append(query)
        after = query.get("continuation-token") or query.get("start-after", "")
        found = sorted(n for n in self.names if n.startswith(query.get("prefix", "")) and n > after)
        page, more = found[: int(query.get("max-keys", PAGE))], len(found) > PAGE
        contents = "".join(
            f"<Contents><Key>{n}</Key><Size>{self.names[n][0]}</Size><ETag>&quot;e&quot;</ETag>"
            f"<LastModified>{self.names[n][1]}</LastModified></Contents>"
            for n in page
        )
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>bucket</Name><KeyCount>{len(page)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{token}{contents}</ListBucketResult>"
        )


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    made = Bucket()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            body = made.answer(query).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    made.address = (  # type: ignore[attr-defined]
        "s3://key:secret@bucket/orders?region=us-east-1&scheme=http"
        f"&endpoint_override=127.0.0.1:{server.server_port}"
    )
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def opened(bucket: Bucket) -> Folder:
    return Folder(bucket.address)  # type: ignore[attr-defined]


def paths(folder: Folder) -> set[str]:
    return {file.path for file in folder.list(None)}


def test_a_poll_of_a_large_prefix_asks_for_new_names_only(bucket: Bucket) -> None:
    bucket.put(*(f"day-1/{n:06}.parquet" for n in range(remote_listing.LARGE)))
    folder = opened(bucket)
    remote = folder._remote
    assert remote is not None
    now_s = 0.0
    remote._now = lambda: now_s
    assert len(paths(folder)) == remote_listing.LARGE
    remote._all_at_s = 60
    bucket.asked.clear()
    before = folder.list(None)
    assert folder.list(None) is before
    assert [q.get("start-after") for q in bucket.asked] == ["orders/day-1/004999.parquet"] * 2
    bucket.put("day-2/000000.parquet", "day-2/_hidden", "day-2/half.tmp", time="2026-11-18T10:00:01.250Z")
    bucket.put("day-2/marker/", size=0)
    (new,) = set(folder.list(None)) - set(before)
    assert (new.path, new.size, new.mtime_us) == ("day-2/000000.parquet", 7, 1_794_996_001_250_000)
    bucket.put("day-0/late.parquet")
    assert "day-0/late.parquet" not in paths(folder)
    now_s = 61.0
    assert {"day-0/late.parquet", "day-2/000000.parquet"} <= paths(folder)


def test_both_listings_show_a_file_alike(bucket: Bucket) -> None:
    """Otherwise a file that was read would look like one that has changed."""
    bucket.put(*(f"{n:06}" for n in range(remote_listing.LARGE)))
    folder = opened(bucket)
    folder.list(None)
    assert folder._remote is not None
    folder._remote._all_at_s = float("inf")
    bucket.put("new/é.parquet", "new/a b+c.parquet", time="2026-11-18T10:00:02.999Z")
    more = [file for file in folder.list(None) if file.path.startswith("new/")]
    folder._remote._all_at_s = 0
    whole = [file for file in folder.list(None) if file.path.startswith("new/")]
    assert more == whole and len(more) == 2


def test_a_small_prefix_is_listed_completely(bucket: Bucket) -> None:
    bucket.put("b.parquet")
    folder = opened(bucket)
    assert paths(folder) == {"b.parquet"}
    bucket.put("a.parquet")
    assert paths(folder) == {"a.parquet", "b.parquet"}
    del bucket.names["orders/b.parquet"]
    assert paths(folder) == {"a.parquet"}
