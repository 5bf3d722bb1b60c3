"""Commits a manifest: completes its listing, writes it, and resolves doubts.

A put is won, lost or unknown.  In any doubt the manifest is read back and its nonce compared; until then
neither outcome is assumed (law 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.engine.coordinator.planned_commit import PlannedCommit
from millpond.engine.coordinator.pond_state import PondState
from millpond.engine.coordinator.protocol import Halt, ProgramSummary, PutManifest, ReadBack
from millpond.errors import InternalError, MillpondError
from millpond.state.manifest.manifest import Manifest, check, fold, run_id
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.store import ReadOnlyError

Pages = Mapping[str, tuple[RunRef, ...]]


@dataclass(frozen=True)
class _Draft:
    put: PutManifest
    pages: Pages
    program: ProgramSummary | None


class Commits:
    def __init__(self, state: PondState) -> None:
        self._state = state
        self._pages: Pages = {}  # of the head's listing
        self._draft: _Draft | None = None
        self._doubts = 0

    def adopt(self, pages: Pages) -> None:
        """Continue from the listing of a head that was read."""
        self._pages = dict(pages)

    def put(self, planned: PlannedCommit) -> PutManifest:
        child, new_id = planned.manifest, self._state.new_id
        added = tuple({run_id(r): r for r in planned.added}.values())
        removed = tuple(dict.fromkeys(planned.removed))
        folded = fold(
            child.pages,
            child.recent,
            child.gone,
            added,
            removed,
            read_page=self._pages.__getitem__,
            name_page=lambda: f"pages/{child.epoch:016d}-{new_id()}",
        )
        manifest = replace(
            child, pages=folded.pages, recent=folded.recent, gone=folded.gone, added=added, removed=removed
        )
        check(manifest, self._state.committed)
        put = PutManifest(manifest, folded.new_pages)
        named = {p.name for p in folded.pages}
        pages = {n: r for n, r in self._pages.items() if n in named} | dict(folded.new_pages)
        self._draft = _Draft(put, pages, planned.program)
        self._doubts = 0
        return put

    def on_won(self) -> Manifest:
        """Make the committed manifest the head, and its program the running one."""
        draft, self._draft = self._drafted(), None
        state, head = self._state, draft.put.manifest
        state.committed = head
        state.live.change(head.added, head.removed)
        if draft.program is not None:
            state.program = draft.program
        self._pages = draft.pages
        return head

    def on_doubt(self, error: MillpondError) -> ReadBack | Halt:
        self._doubts += 1
        if self._doubts >= self._state.policy.storage_tries or isinstance(error, ReadOnlyError):
            return Halt(error)
        return ReadBack(self._drafted().put.manifest.epoch)

    def is_ours(self, committed: Manifest) -> bool:
        """Did the put that was in doubt succeed?"""
        return committed.nonce == self._drafted().put.manifest.nonce

    def put_again(self) -> PutManifest:
        return self._drafted().put

    def _drafted(self) -> _Draft:
        if self._draft is None:
            raise InternalError("the answer to a put that was not requested")
        return self._draft
