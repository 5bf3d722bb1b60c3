"""`sql/host.py`, the only way from SQL to the pond, is documented and implemented."""

from __future__ import annotations

from millpond.pond.sql_host import SqlHost
from millpond.sql.host import Host


def test_every_member_of_the_host_has_a_meaning_and_an_implementation() -> None:
    members = {name: member for name, member in vars(Host).items() if not name.startswith("_")}
    assert len(members) > 20
    assert all(member.__doc__ for member in members.values())
    assert not {name for name in members if not hasattr(SqlHost, name)}
