"""ALTER SOURCE name SET (shed = '2s', …): when the source sheds rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.errors import InvalidError
from millpond.operators.scan import Scan
from millpond.plan.nodes import upstream
from millpond.sql.text.options import only, read_options
from millpond.sql.text.parse import Words

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

OPTIONS = ("shed", "shed.by", "shed.key", "shed.score", "shed.floor", "shed.recover")


def alter(session: SqlSession, words: Words, name: str) -> None:
    given = read_options(words)
    words.end()
    only(given, OPTIONS, "ALTER SOURCE … SET")
    if "shed" not in given:
        raise InvalidError("shed is missing", hint="write SET (shed = '2s') or SET (shed = 'off')")
    session.require_epoch()
    found = session.catalog.get(name, "source")
    assert found.step is not None
    plan = session.plan
    scan = next(s for s in sorted(upstream(plan, [found.step])) if isinstance(plan.nodes[s].operator, Scan))
    options: dict[str, Any] = {}
    if "shed.by" in given:
        options["by"] = given["shed.by"].lower()
    if "shed.key" in given:
        options["key"] = tuple(part.strip() for part in given["shed.key"].split(","))
    if "shed.score" in given:
        options["score"] = given["shed.score"]
    if "shed.floor" in given:
        options["floor"] = _number(given["shed.floor"])
    if "shed.recover" in given:
        options["recover"] = given["shed.recover"].lower() == "true"
    target = given["shed"]
    session.host.shed(scan, None if target.lower() in ("off", "false") else target, **options)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        said = f"got {text!r}"
        raise InvalidError("shed.floor is a number", detail=said, hint="for example 0.05") from None
