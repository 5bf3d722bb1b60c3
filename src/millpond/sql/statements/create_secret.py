"""CREATE SECRET, DROP SECRET and SHOW SECRETS: values that definitions refer to and never contain.

    CREATE [OR REPLACE] SECRET [IF NOT EXISTS] name WITH (value = '…')
    CREATE SECRET name WITH (backend = 'meta') AS '…'    as RisingWave writes it

A definition refers to a secret by `password = secret name`, or by `${secret:name}` inside a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.masking import mask_value
from millpond.secret_references import names_in
from millpond.sql.result import Result
from millpond.sql.text.options import only, read_options
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_WRITE = "CREATE SECRET name WITH (value = '…')"


def run(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the secret")
        value = _value(words)
        words.end()
        mask_value(value)
        known = session.secrets.names()
        if name in known and not replaces:
            if exists:
                return Result.said(f"CREATE_SECRET {name}: there already")
            raise InvalidError(
                f"there is a secret named {name!r} already", hint="CREATE OR REPLACE SECRET changes its value"
            )
        session.secrets.put(name, value)
        return Result.said("CREATE_SECRET")

    return called


def run_drop(session: SqlSession, words: Words) -> Result:
    exists = words.if_exists()
    name = words.name("name of the secret")
    words.end()
    if exists and name not in session.secrets.names():
        return Result.said(f"DROP_SECRET {name}: not there")
    used = sorted(o.name for o in session.plan.objects.values() if name in _names_in(o.options))
    if used and name in session.secrets.names():
        raise InvalidError(
            f"secret {name!r} is used", detail=f"by {', '.join(used)}", hint="drop these first, or replace it"
        )
    session.secrets.drop(name)
    return Result.said("DROP_SECRET")


def run_show(session: SqlSession, words: Words) -> Result:
    words.end()
    names = pa.array(session.secrets.names(), pa.string())
    return Result.of_rows(["name"], ["VARCHAR"], pa.table({"name": names}))


def _value(words: Words) -> str:
    found: dict[str, str] = {}
    if words.take("WITH"):
        options = read_options(words)
        only(options, ("value", "backend"), "a secret")
        if options.get("backend", "meta") != "meta":
            words.fail("secrets are stored in the folder of the pond", "leave backend out")
        found = dict(options)
    if words.take("AS"):
        token = None if words.over else words.fragment.tokens[words.at]
        if "value" in found or token is None or token.token_type is not TokenType.STRING:
            words.fail("a secret has one value, in quotes", _WRITE)
        found["value"] = words.text()
    if not found.get("value"):
        words.fail("the value of the secret is missing", _WRITE)
    return found["value"]


def _names_in(options: Any) -> set[str]:
    return {name for value in options.values() if isinstance(value, str) for name in names_in(value)}
