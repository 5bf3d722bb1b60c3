"""Decides by grants what a user may run: the one place that all protocols ask.

Law: nothing is allowed that no grant allows.  A statement that this module does not know needs ADMIN, and an
object counts as read as soon as its name stands anywhere in the statement outside of string literals.  So a
column that has the name of a table without a grant is refused, too; nothing is read that should not be.

Views, materialized views and functions run with the rights of who defined them, as in PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import TokenType

from millpond.server.access.known_rules import KnownRules
from millpond.server.authentication import LoginError, ServedUser
from millpond.server.authorization import NotAllowedError
from millpond.sql.binding.catalog import Catalog
from millpond.sql.session import SqlSession
from millpond.sql.statements.create_table_as import is_select_into
from millpond.sql.text.parse import SqlFragment, Words
from millpond.state.access_rules import POND

READS = ("SELECT", "WITH", "VALUES", "FROM", "(", "TABLE", "SUBSCRIBE", "DESCRIBE", "DESC")
FREE = (  # of the client's own session
    *(
        "BEGIN",
        "START",
        "COMMIT",
        "END",
        "ROLLBACK",
        "ABORT",
        "SAVEPOINT",
        "RELEASE",
        "SET",
        "RESET",
        "DISCARD",
    ),
    *("FLUSH", "FETCH", "MOVE", "CLOSE", "EXECUTE", "DEALLOCATE", "UNLISTEN", ""),
)
SHOWN_TO_ADMINS = ("GRANTS", "SECRETS", "CREATE")
SYSTEM_ROWS = ("errors", "late", "audit")  # relations of millpond.* that contain rows of users
_NESTED_COMMENT = re.compile(r"/\*(?:(?!\*/).)*/\*", re.DOTALL)


class GrantedAccess:
    def __init__(self, rules: KnownRules) -> None:
        self._rules = rules

    def check(self, user: ServedUser, statement: SqlFragment, session: SqlSession) -> None:
        """Raise NotAllowedError unless the user may run a statement."""
        rules = self._rules.now()
        if user.name not in rules.roles or not rules.roles[user.name].login:
            raise LoginError(f"user {user.name!r} may no longer log in", hint="ask an administrator")
        if rules.is_admin(user.name):
            return
        if _NESTED_COMMENT.search(statement.sql):
            raise NotAllowedError("a comment inside a comment is not allowed", hint="leave it out")
        self._check(user, statement, session.catalog)

    def rules_now(self) -> object:
        return self._rules.now()

    def check_action(self, user: ServedUser, action: str, target: str | None = None) -> None:
        """The same for what is no statement: inserting rows needs INSERT, all else ADMIN."""
        if action == "insert" and target is not None:
            self._need(user, "INSERT", target)
        else:
            self._need(user, "ADMIN", POND)

    def limits(self, user: ServedUser) -> Mapping[str, int]:
        """What an administrator has limited for the user."""
        return self._rules.now().limits_of(user.name)

    def _check(self, user: ServedUser, statement: SqlFragment, catalog: Catalog) -> None:
        verb = statement.word(0)
        match verb:
            case _ if verb in READS:
                if is_select_into(statement):
                    self._need(user, "CREATE", POND)
                self._check_reads(user, statement, catalog)
            case _ if verb in FREE:
                return
            case "SHOW":
                if statement.word(1) in SHOWN_TO_ADMINS:
                    self._need(user, "ADMIN", POND)
            case "INSERT" | "UPDATE" | "DELETE":
                self._check_change(user, statement, catalog)
            case "MERGE":
                self._check_merge(user, statement, catalog)
            case "TRUNCATE":
                self._check_truncate(user, statement, catalog)
            case "EXPLAIN" | "PREPARE" | "DECLARE":
                self._check_reads(user, statement, catalog)
                inner = _inner(statement)
                if inner is not None:
                    self._check(user, inner, catalog)
            case "COPY":
                self._check_copy(user, statement, catalog)
            case "CREATE":
                self._check_create(user, statement, catalog)
            case _:
                self._need(user, "ADMIN", POND)

    def _check_reads(
        self, user: ServedUser, statement: SqlFragment, catalog: Catalog, besides: str | None = None
    ) -> None:
        words = {t.text.lower() for t in statement.tokens if t.token_type is not TokenType.STRING}
        named = {
            o.name for o in catalog.objects.values() if o.name.lower() in words and o.kind not in _NO_ROWS
        }
        named |= {o.name for o in catalog.read_by(statement.sql) if o.kind not in _NO_ROWS}
        for name in sorted(named):
            if besides is None or name.lower() != besides.lower():
                self._need(user, "SELECT", name)
        for n in range(len(statement) - 2):
            own = statement.tokens[n].text.lower().startswith(_OF_THE_SERVER)
            if (
                own
                and statement.word(n + 1) == "("
                and statement.tokens[n].token_type is not TokenType.STRING
            ):
                self._need(user, "ADMIN", POND)
            if statement.word(n + 1) != "." or statement.tokens[n].token_type is TokenType.STRING:
                continue
            schema, name = statement.tokens[n].text.lower(), statement.tokens[n + 2].text.lower()
            if schema == "state" or (schema == "millpond" and name in SYSTEM_ROWS):
                self._need(user, "ADMIN", POND)

    def _check_change(self, user: ServedUser, statement: SqlFragment, catalog: Catalog) -> None:
        verb = statement.word(0)
        words = Words(statement, 1 if verb == "UPDATE" else 2)
        target = words.name("name of the table")
        found = catalog.find(target)
        target = target if found is None else found.name
        self._need(user, verb, target)
        rest = statement.words[words.at :]
        if verb == "INSERT" and statement.find("DO", "UPDATE") is not None:
            self._need(user, "UPDATE", target)
        reads_target = "RETURNING" in rest or (verb != "INSERT" and "WHERE" in rest)
        again = any(
            t.text.lower() == target.lower() and t.token_type is not TokenType.STRING
            for t in statement.tokens[words.at :]
        )
        besides = None if reads_target or again else target
        self._check_reads(user, statement, catalog, besides)

    def _check_merge(self, user: ServedUser, statement: SqlFragment, catalog: Catalog) -> None:
        """MERGE reads its table and its source, and needs what its WHEN clauses do."""
        words = Words(statement, 2)
        words.take("ONLY")
        found = catalog.find(words.name("name of the table"))
        for n in range(words.at, len(statement) - 1):
            if statement.word(n) == "THEN" and statement.word(n + 1) in ("INSERT", "UPDATE", "DELETE"):
                self._need(user, statement.word(n + 1), POND if found is None else found.name)
        self._check_reads(user, statement, catalog)

    def _check_truncate(self, user: ServedUser, statement: SqlFragment, catalog: Catalog) -> None:
        """TRUNCATE needs DELETE on everything that it names."""
        named = {t.text.lower() for t in statement.tokens[1:]}
        tables = [o.name for o in catalog.objects.values() if o.name.lower() in named]
        for name in tables or [POND]:
            self._need(user, "DELETE" if tables else "ADMIN", name)

    def _check_copy(self, user: ServedUser, statement: SqlFragment, catalog: Catalog) -> None:
        """COPY may exchange rows with the client, but never read or write files."""
        words = Words(statement, 1)
        if statement.word(1) != "(":
            name = words.name("name of the table")
            if statement.word(words.at) == "(":
                words.at = statement.bracket(words.at)[1]
            found = catalog.find(name)
            if statement.has(words.at, "FROM", "STDIN"):
                self._need(user, "INSERT", name if found is None else found.name)
                return
        if statement.find("TO", "STDOUT") is None:
            raise NotAllowedError("COPY reads and writes no files", hint="COPY … FROM STDIN, or TO STDOUT")
        self._check_reads(user, statement, catalog)

    def _check_create(self, user: ServedUser, statement: SqlFragment, catalog: Catalog) -> None:
        """Tables, views and indexes need CREATE; what runs code or reaches outside needs ADMIN."""
        plain = statement.word(1) in ("TABLE", "VIEW", "INDEX") or statement.has(1, "MATERIALIZED", "VIEW")
        if not plain or "CONNECTOR" in statement.words or statement.has(1, "OR", "REPLACE"):
            self._need(user, "ADMIN", POND)
            return
        self._need(user, "CREATE", POND)
        self._check_reads(user, statement, catalog)

    def _need(self, user: ServedUser, privilege: str, target: str) -> None:
        if self._rules.now().allows(user.name, privilege, target):
            return
        where = "the pond" if target == POND else repr(target)
        said = "POND" if target == POND else target
        raise NotAllowedError(
            f"user {user.name!r} lacks {privilege} on {where}",
            hint=self._rules.hint(user.name, privilege, said),
        )


_OF_THE_SERVER = ("duckdb_", "pragma_")  # functions that show settings and folders of the server
_NO_ROWS = ("sink", "index", "function")


def _inner(statement: SqlFragment) -> SqlFragment | None:
    """The statement inside EXPLAIN, PREPARE … AS and DECLARE … FOR."""
    verbs = (*READS, "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE")
    for place in range(1, len(statement)):
        if statement.word(place) in verbs and statement.word(place) != "(":
            return statement.part(place)
    return None
