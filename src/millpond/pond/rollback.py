"""Rolls a pond back to an older epoch.

Law: a rollback is a forward commit, which the coordinator makes; what cannot work is refused here, with the
reason, before the command is sent.
"""

from __future__ import annotations

from millpond.arguments.call_errors import need_epoch
from millpond.errors import InvalidError
from millpond.plan.change import restored
from millpond.plan.user_code import with_operators
from millpond.pond.components import Components
from millpond.pond.inbox_client import InboxClient
from millpond.state.manifest import history
from millpond.state.manifest.manifest import Manifest


def roll_back(inbox: InboxClient, epoch: int | str, *, force: bool) -> None:
    reader = inbox.components.reader
    head = reader.head()
    wanted = reader.resolve(head, need_epoch("rollback", epoch))
    if wanted < head.floor and wanted not in head.savepoints.values():
        raise InvalidError(f"epoch {wanted} is no longer kept", detail=f"the floor is {head.floor}")
    _require_readable(inbox.components, head, wanted)
    if not force:
        reader.require_no_sink_retracts(head, wanted)
    inbox.command("rollback", {"epoch": wanted, **({"force": True} if force else {})})


def _require_readable(components: Components, head: Manifest, epoch: int) -> None:
    """Refuse an epoch whose state the current pipeline cannot read; the coordinator does so too."""
    target = history.read_manifest(components.store, epoch)
    if target.catalog is None or target.catalog == head.catalog:
        return
    old, now = (with_operators(components.reader.plan_of(m)) for m in (target, head))
    try:
        restored(old, now)
    except InvalidError as error:
        raise InvalidError(
            f"this pipeline cannot go on from epoch {epoch}",
            detail=f"{error.message}: {error.detail}",
            hint="fork that epoch, and run the fork with the code of its time or migrate it",
            step=error.step,
            epoch=epoch,
        ) from error
