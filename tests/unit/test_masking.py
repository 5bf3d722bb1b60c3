"""Secrets are not shown: in errors, logs, EXPLAIN, SHOW, the prompt's history, `repr`; and the pond is its owner's."""

from __future__ import annotations

import logging
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

import millpond
from millpond.cli.prompt import _mask_history
from millpond.errors import InvalidError, MillpondError
from millpond.masking import masked, masked_at, masked_options
from millpond.plan.objects import SqlObject
from millpond.sources.files import FileSource
from millpond.sources.kafka import KafkaSource
from millpond.sources.kafka_client import Cluster
from millpond.state.store.store import open_store

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("s3://AKIA:hunter2@bucket/p", "s3://***@bucket/p"),
        ("s3a://hunter2@bucket", "s3a://***@bucket"),
        ("at kafka://u:hunter2@b1:9092, gone", "at kafka://***@b1:9092, gone"),
        ("https://h/p?region=eu&access_key=hunter2&x=1", "https://h/p?region=eu&access_key=***&x=1"),
        ("https://h/p?X-Amz-Signature=hunter2", "https://h/p?X-Amz-Signature=***"),
        ("s3://b?password=hunter2", "s3://b?password=***"),
        ("sasl.password=hunter2, sasl.mechanism=PLAIN", "sasl.password=***, sasl.mechanism=PLAIN"),
        ("{'sasl.password': 'hunter2'}", "{'sasl.password': ***}"),
        ('secret_access_key: "hunter2", region: "eu"', 'secret_access_key: ***, region: "eu"'),
        ("aws_session_token = 'hun''ter2' x", "aws_session_token = *** x"),
        ("s3://bucket/p?region=eu", "s3://bucket/p?region=eu"),
        ("unexpected token: x", "unexpected token: x"),
        ("mail a@b.de", "mail a@b.de"),
    ],
)
def test_secrets_of_addresses_and_settings_are_masked(said: str, shown: str) -> None:
    assert masked(said) == shown
    assert masked(shown) == shown
    error = InvalidError(said, detail=said, hint=said)
    assert str(error).count(shown) == 3 and SECRET not in repr(error) and SECRET not in str(error.fields())


@pytest.mark.parametrize(
    "end",
    [
        "(connector = 'kafka', client.sasl.password = 'hunter2')",
        "(connector = 'kafka', client.sasl.password = 'hunter2'",
        "(connector = 'kafka', client.sasl.password 'hunter2')",
        "(connector = 'kafka', \"client.sasl.password\" = $$hunter2$$)",
        "(connector = 'kafka', anything = hunter2, more = 'x')",
        "(connector = 'kafka', client.ssl.key.pem = E'a\nhunter2\nb')",
        "(connector = 'files', path = 's3://k:hunter2@bucket/p')",
        "(connector = 'files', path = 's3://bucket/p?secret=hunter2')",
    ],
)
def test_options_of_a_statement_are_masked(end: str) -> None:
    for word in ("WITH", "with\n", "OPTIONS"):
        sql = f"CREATE SOURCE s (a int) {word} {end}"
        shown = masked_options(sql)
        assert SECRET not in shown and "connector = '" in shown
        assert masked_options(shown) == shown


def test_the_place_moves_with_the_mask() -> None:
    sql = "CREATE SOURCE é WITH (pin = 'hunter2', also = 1) nonsense"
    at = len(sql[: sql.index("nonsense")].encode())
    shown, place = masked_at(sql, (at, 8))
    assert place is not None
    assert shown.encode()[place[0] : place[0] + place[1]] == b"nonsense"


WRONG: list[str] = [
    "CREATE SOURCE s (a int) WITH (connector = 'kafka', brokers = 'localhost:1', topic = 't', passwort = 'hunter2')",
    "CREATE SOURCE s (a int) WITH (connector = 'kafka', brokers = 'localhost:1', client.sasl.password = 'hunter2'",
    "CREATE SOURCE s (a int) WITH (connector = 'kafka', client.sasl.password = 'hunter2)",
    "CREATE SOURCE s (a int) WIHT (connector = 'kafka', client.sasl.password = 'hunter2')",
    "CREATE SOURCE s (a int) WITH (connector = 'kafka', client.sasl.password = 'hunter2', client.sasl.password = 'x')",
    "CREATE SOURCE s (a nonsense) WITH (connector = 'kafka', client.sasl.password = 'hunter2')",
    "CREATE SOURCE s (a int) WITH (connector = 'kafka', client.sasl.password = 'hunter2') more",
    "CREATE SOURCE s WITH (connector = 'files', path = 'ftp://key:hunter2@host/p')",
    "CREATE SOURCE s WITH (connector = 'files', path = 's3://key:hunter2@bucket/p?no_such=1&region=eu')",
    "CREATE SOURCE s (a int) WITH (connector = 'files', path = 's3://b/p?secret_key=hunter2', fromat = 'json')",
    "CREATE SINK k FROM t WITH (connector = 'files', path = 's3://key:hunter2@bucket/p')",
    "CREATE SINK k FROM t WITH (connector = 'files', pin = 'hunter2')",
    "CREATE TABLE x (a int) WITH (password = 'hunter2')",
    "CREATE VIEW x WITH (password = 'hunter2') AS SELECT 1 AS a",
    "CREATE SOURCE s (a int) WITH (connector = 'kafka', brokers = 'localhost:1', topic = 't', "
    "client.sasl.oauthbearer.method = 'hunter2')",
    "CREATE SOURCE s (a int) WITH (connector = 'kafka', brokers = 'localhost:1', topic = 't', client.foo = 'hunter2')",
]


@pytest.mark.parametrize("sql", WRONG)
def test_no_error_shows_what_options_say(sql: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (a int)")
        with pytest.raises(MillpondError) as told:
            pond.sql(sql)
    assert (
        SECRET not in str(told.value)
        and SECRET not in repr(told.value)
        and SECRET not in str(told.value.fields())
    )
    assert SECRET not in caplog.text
    assert SECRET not in "".join(traceback.format_exception(told.value)).replace(repr(sql), "")


def test_show_and_explain_mask_options(tmp_path: Path) -> None:
    source = KafkaSource("localhost:1", "t", {"a": int}, client={"sasl.password": SECRET})
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        said = "CREATE SOURCE s (a int) WITH (connector = 'kafka', brokers = 'b:1', client.sasl.password = 'hunter2')"
        stream = pond.stream("s", source)
        stream.view("v")
        builder = pond._builder
        made = SqlObject("source", "s", step=stream.step, options={"client.sasl.password": SECRET}, said=said)
        builder.plan = builder.plan.with_object(made)
        (shown,) = pond.sql("SHOW CREATE s").fetchone() or ("",)
        assert (
            "connector = 'kafka'" in shown and "client.sasl.password = ***" in shown and SECRET not in shown
        )
        for sql in ("EXPLAIN", "EXPLAIN s", "DESCRIBE s", "SHOW SOURCES", "SHOW OBJECTS"):
            assert SECRET not in str(pond.sql(sql).fetchall())
        assert SECRET not in repr(made) and SECRET not in repr(builder.plan)


@pytest.mark.parametrize(
    "made",
    [
        lambda: KafkaSource(
            "b:1", "t", {"a": int}, client={"sasl.password": SECRET, "ssl.key.password": SECRET}
        ),
        lambda: Cluster("b:1", (("sasl.password", SECRET),)),
        lambda: FileSource(f"s3://key:{SECRET}@bucket/p", schema=pa.schema([("a", pa.int64())])),
        lambda: SqlObject("source", "s", options={"password": SECRET}, said=f"WITH (password = '{SECRET}')"),
        lambda: open_store("s3://bucket/p", access_key_id="k", secret_access_key=SECRET, region="eu").uri,
    ],
)
def test_repr_shows_no_secret(made: Callable[[], object]) -> None:
    assert SECRET not in repr(made())


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        (f"s3://key:{SECRET}@bucket/p?secret_access_key={SECRET}", {}),
        (f"s3://bucket/p?aws_session_token={SECRET}", {}),
        ("s3://bucket/p", {"secret_access_key": SECRET, "retries": "no number"}),
        ("s3://bucket/p", {"secret_access_key": SECRET, "allow_http": "perhaps"}),
        ("s3://bucket/p", {"secret_access_key": SECRET, "no_such_option": SECRET}),
        (f"ftp://user:{SECRET}@host/p", {}),
        (f"file://user:{SECRET}@host", {}),
    ],
)
def test_no_error_of_a_store_shows_its_options(uri: str, options: dict[str, str]) -> None:
    with pytest.raises((MillpondError, ValueError)) as told:
        open_store(uri, **options)
    assert SECRET not in str(told.value)
    with pytest.raises((MillpondError, ValueError)) as told:
        millpond.open(uri, store_options=options, engine="inline")
    assert SECRET not in str(told.value)


def test_the_history_of_the_prompt_holds_no_secret() -> None:
    class Lines:
        kept: ClassVar = [
            "SELECT 1",
            "CREATE SOURCE s WITH (connector = 'kafka', client.sasl.password = 'hunter2')",
        ]

        def get_current_history_length(self) -> int:
            return len(self.kept)

        def get_history_item(self, number: int) -> str:
            return self.kept[number - 1]

        def replace_history_item(self, place: int, line: str) -> None:
            self.kept[place] = line

    _mask_history(Lines())
    assert Lines.kept[0] == "SELECT 1" and SECRET not in Lines.kept[1]


def test_a_new_pond_is_for_its_owner_only(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "above" / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1); FLUSH")
        pond.fork(tmp_path / "fork")
    for name in ("above/pond", "fork"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    (tmp_path / "old").mkdir(mode=0o755)
    (tmp_path / "old").chmod(0o755)
    with millpond.open(tmp_path / "old", engine="inline") as pond:
        pond.sql("CREATE TABLE t (a int); INSERT INTO t VALUES (1); FLUSH")
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o755
