"""Recognizes FOR SYSTEM_TIME AS OF PROCTIME() by the mark that `text/as_of_now.py` writes."""

from __future__ import annotations

from millpond.sql.bound.relations import BoundAsOfNow, BoundProject, BoundRelation, rebuilt
from millpond.sql.text.as_of_now import MARK


def recognize_as_of_now(relation: BoundRelation) -> BoundRelation:
    return rebuilt(relation, _recognized)


def _recognized(node: BoundRelation) -> BoundRelation:
    mark = [e for e in node.outputs if e.alias == MARK] if isinstance(node, BoundProject) else []
    return BoundAsOfNow(input=node, at=mark[0].at) if mark else node
