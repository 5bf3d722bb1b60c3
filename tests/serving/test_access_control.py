"""Users, grants and tokens: nothing is allowed that no grant allows, whatever the statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.clock import SystemClock
from millpond.errors import InvalidError
from millpond.pond import Pond
from millpond.server.access.cached_rules import CachedRules
from millpond.server.access.granted_access import GrantedAccess
from millpond.server.access.pond_users import PondUsers
from millpond.server.authentication import LoginError
from millpond.server.authorization import NotAllowedError
from millpond.sql.text.parse import statements

PASSWORD = "correct horse"


class Ahead(SystemClock):
    days = 0

    def now_us(self) -> int:
        return super().now_us() + self.days * 86_400_000_000


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("access") / "pond", engine="inline") as made:
        made.sql("CREATE TABLE open (id int PRIMARY KEY, x text); CREATE TABLE secret (id int, x text)")
        made.sql("CREATE MATERIALIZED VIEW shown AS SELECT count(*) AS n FROM secret")
        made.sql("CREATE VIEW window_on AS SELECT id FROM secret; FLUSH")
        made.sql(f"CREATE USER ann PASSWORD '{PASSWORD}'; CREATE ROLE staff; CREATE USER root ADMIN")
        made.sql("CREATE USER bob PASSWORD 'b'; CREATE USER writer; CREATE USER maker; CREATE USER none")
        made.sql("GRANT SELECT ON open, shown TO staff; GRANT staff TO ann, bob; REVOKE staff FROM bob")
        made.sql("GRANT SELECT ON window_on TO ann; GRANT INSERT, UPDATE, DELETE ON open TO writer")
        made.sql("GRANT CREATE ON POND TO maker; GRANT SELECT ON ALL TABLES TO maker")
        made.sql("GRANT SELECT ON secret TO maker; REVOKE SELECT ON secret FROM maker")
        yield made


def allowed(pond: Pond, name: str, sql: str) -> bool:
    rules = CachedRules(pond.store)
    access = GrantedAccess(rules)
    user = PondUsers(rules).logged_in(name)
    try:
        access.check(user, statements(sql, "postgres")[0], pond.session)
    except NotAllowedError:
        return False
    return True


READ_OPEN = ["SELECT * FROM open", "SELECT * FROM shown", "SELECT * FROM window_on", "SUBSCRIBE open"]
READ_SECRET = [
    "SELECT * FROM secret",
    'SELECT * FROM "secret"',
    "SELECT * FROM main.secret",
    "SELECT * FROM SECRET AS OF EPOCH 1",
    "WITH a AS (SELECT * FROM secret) SELECT * FROM a",
    "SELECT (SELECT max(x) FROM secret) FROM open",
    "SELECT * FROM open WHERE id IN (SELECT id FROM secret)",
    "SELECT * FROM DIFF(secret, 1, 2)",
    "FROM secret",
    "(SELECT * FROM secret)",
    "TABLE secret",
    "VALUES ((SELECT count(*) FROM secret))",
    "SUBSCRIBE secret",
    "DESCRIBE secret",
    "EXPLAIN SELECT * FROM secret",
    "EXPLAIN ANALYZE SELECT * FROM secret",
    "PREPARE p AS SELECT * FROM secret",
    "DECLARE c CURSOR FOR SELECT * FROM secret",
    "COPY secret TO STDOUT",
    "COPY (SELECT * FROM secret) TO STDOUT",
    "SELECT * FROM /* /* */ secret --*/\n WHERE true",
    "SELECT * FROM open, /* */ secret",
    "SELECT * FROM state.step.name",
    "SELECT * FROM millpond.errors",
    "SELECT value FROM duckdb_settings() WHERE name = 'temp_directory'",
    'SELECT * FROM "DUCKDB_secrets" ()',
    "SELECT (SELECT count(*) FROM pragma_database_list())",
]
WRITES = [
    "INSERT INTO open VALUES (1, 'x')",
    "UPDATE open SET x = 'y'",
    "DELETE FROM open",
    "COPY open FROM STDIN",
    "TRUNCATE open",
]
ADMIN = [
    "CREATE SOURCE s WITH (connector = 'files', path = '/etc')",
    "CREATE TABLE s (id int) WITH (connector = 'postgres-cdc')",
    "CREATE SINK s FROM open WITH (connector = 'files', path = '/tmp/x')",
    "CREATE FUNCTION f(a int) AS a + 1",
    "CREATE FUNCTION f(a int) RETURNS int LANGUAGE python AS 'x'",
    "CREATE SECRET s WITH (value = 'x')",
    "CREATE SAVEPOINT s",
    "CREATE USER eve ADMIN",
    "CREATE TOKEN FOR root",
    "ALTER USER ann ADMIN",
    "ALTER TABLE open ADD COLUMN y int",
    "DROP TABLE open",
    "DROP USER root",
    "GRANT ADMIN ON POND TO ann",
    "REVOKE staff FROM ann",
    "SHOW GRANTS",
    "SHOW SECRETS",
    "SHOW CREATE TABLE open",
    "COPY open FROM '/etc/passwd'",
    "COPY open TO '/tmp/x'",
    "ATTACH 'x'",
    "VACUUM",
]


def test_reads(pond: Pond) -> None:
    for sql in READ_OPEN:
        assert allowed(pond, "ann", sql), sql
        assert not allowed(pond, "bob", sql), f"{sql}: the role was taken back"
    for sql in READ_SECRET:
        for name in ("ann", "bob", "writer", "none"):
            assert not allowed(pond, name, sql), sql
    assert allowed(pond, "ann", "SELECT 'secret'") and allowed(pond, "none", "SELECT 1")
    assert allowed(pond, "maker", "SELECT * FROM secret"), "ALL TABLES"


def test_changes_and_transactions(pond: Pond) -> None:
    for sql in WRITES:
        assert allowed(pond, "writer", sql), sql
        assert not allowed(pond, "ann", sql) and not allowed(pond, "maker", sql), sql
    for sql in (
        "UPDATE open SET x = 'y' WHERE id = 1",
        "DELETE FROM open RETURNING *",
        "INSERT INTO open SELECT id, x FROM secret",
        "INSERT INTO open SELECT id + 1, x FROM open",
        "INSERT INTO secret VALUES (1, 'x')",
        "UPDATE open SET x = s.x FROM secret s",
        "EXPLAIN INSERT INTO secret VALUES (1, 'x')",
        "TRUNCATE open, secret",
        "TRUNCATE nope",
        "MERGE INTO open USING (VALUES (1)) v(i) ON true WHEN MATCHED THEN DELETE",
    ):
        assert not allowed(pond, "writer", sql), sql
    merge = "MERGE INTO open AS o USING (VALUES (1)) v(i) ON o.id = i WHEN MATCHED THEN"
    assert allowed(pond, "ann", f"{merge} DO NOTHING") and not allowed(pond, "ann", f"{merge} DELETE")
    for sql in ("BEGIN", "COMMIT", "ROLLBACK TO s", "SET TimeZone = 'UTC'", "FLUSH", "SHOW TABLES"):
        assert allowed(pond, "none", sql), sql


def test_definitions_and_administration(pond: Pond) -> None:
    for sql in (
        "CREATE TABLE n (id int)",
        "SELECT * INTO n FROM open",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM open",
    ):
        assert (
            allowed(pond, "maker", sql) and not allowed(pond, "ann", sql) and not allowed(pond, "writer", sql)
        )
    for sql in ADMIN:
        assert allowed(pond, "root", sql)
        for name in ("ann", "writer", "maker", "none"):
            assert not allowed(pond, name, sql), (name, sql)
    rules = CachedRules(pond.store)
    access, users = GrantedAccess(rules), PondUsers(rules)
    access.check_action(users.logged_in("writer"), "insert", "open")
    for action, target in (("insert", "secret"), ("rollback", None), ("rescale", None), ("fork", None)):
        with pytest.raises(NotAllowedError):
            access.check_action(users.logged_in("writer"), action, target)


def test_passwords_and_tokens(pond: Pond) -> None:
    clock = Ahead()
    users = PondUsers(CachedRules(pond.store), clock)
    assert users.by_password("ann", PASSWORD).name == "ann" and users.by_password("bob", "b").name == "bob"
    said = set()
    for name, password in (("ann", "wrong"), ("nobody", "x"), ("staff", ""), ("writer", ""), ("root", "")):
        with pytest.raises(LoginError) as refused:
            users.by_password(name, password)
        said.add(str(refused.value))
    assert len(said) == 1, "it does not say which users exist"
    token = pond.sql("CREATE TOKEN FOR ann EXPIRES IN 2 DAYS").fetchall()[0][0]
    users = PondUsers(CachedRules(pond.store), clock)
    assert users.by_token(token).name == "ann"
    clock.days = 3
    for wrong in (token, token[:-1], ""):
        with pytest.raises(LoginError):
            users.by_token(wrong)
    clock.days = 0
    pond.sql("DROP TOKENS FOR ann")
    with pytest.raises(LoginError):
        PondUsers(CachedRules(pond.store), clock).by_token(token)
    with pytest.raises(InvalidError, match="only users have tokens"):
        pond.sql("CREATE TOKEN FOR staff")
    folder = Path(pond.store.uri.removeprefix("file://"))
    stored = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert PASSWORD.encode() not in stored and token.encode() not in stored


def test_rules_that_make_no_sense_are_refused(pond: Pond) -> None:
    for sql, why in (
        ("CREATE USER ann", "already"),
        ("GRANT SELECT ON nope TO ann", "nope"),
        ("GRANT SELECT ON open TO nobody", "nobody"),
        ("GRANT CREATE ON open TO ann", "granted on the pond"),
        ("GRANT FLY ON open TO ann", "privilege"),
        ("GRANT ann TO staff", "each other"),
        ("CREATE USER eve PASSWORD 5", "in quotes"),
        ("BEGIN; CREATE USER eve", "part of a transaction"),
    ):
        with pytest.raises(InvalidError, match=why):
            pond.sql(sql)
        if pond.session.in_transaction:
            pond.sql("ROLLBACK")
    listed = pond.sql("SHOW GRANTS").fetchall()
    assert ("ann", "user", "MEMBER", "staff") in listed and ("staff", "role", "SELECT", "open") in listed
    pond.sql("CREATE USER temp; GRANT SELECT ON open TO temp; DROP USER temp; CREATE USER temp")
    assert not allowed(pond, "temp", "SELECT * FROM open"), "a new user has nothing of an old one"


def test_a_pond_with_users_is_served_to_them(pond: Pond) -> None:
    with pond.serve(http_port=0) as server:
        assert server.serving.authenticator.needs_password
        assert isinstance(server.serving.authorizer, GrantedAccess)
    with pond.serve(http_port=0, users="pond") as server:
        assert isinstance(server.serving.authorizer, GrantedAccess)
    with millpond.open("memory://", engine="inline") as other, pytest.raises(InvalidError, match="no users"):
        other.serve(http_port=0, users="pond")
