"""The manifest of an epoch (a checkpoint): everything that changed in it, in one immutable file.

Law 2: an epoch is visible entirely or not at all, because its manifest is one put-if-absent.  A manifest
lists the live runs of every table as unchanged pages (written once, named by many manifests) plus a short
list of runs added and removed since.  So the amortised bytes of an epoch do not grow with the number of runs.
`fold` is the only way to derive a listing from the parent's, and `check` has the rules that every committed
manifest obeys.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from millpond.errors import DataError, InternalError
from millpond.state.checksummed_json import has_seal, sealed
from millpond.state.manifest.backfill_progress import BackfillProgress
from millpond.state.runs.run_ref import RunRef

FORMAT = 1
STORED_BACKFILL = "filling"  # the name of `Manifest.backfill` in the file
PAGE_RUNS = 256  # the maximum number of runs in a page
FOLD_AT = 96  # the number of entries in recent + gone from which on pages are written

Kind = Literal["create", "takeover", "epoch", "change", "rollback", "fork"]
PLACED = "placed"  # the metric with the host of each task, which every manifest takes over from its parent
RunId = tuple[str, int, int]  # file, segment, h_min: identifies one ref within a listing


def manifest_name(epoch: int) -> str:
    return f"manifests/{epoch:016d}"


def epoch_of(name: str) -> int:
    return int(name.rsplit("/", 1)[1])


def run_id(ref: RunRef) -> RunId:
    return (ref.file, ref.segment, ref.h_min)


@dataclass(frozen=True)
class Page:
    """An unchanged section of a listing: the file `name` contains `runs` refs."""

    name: str
    runs: int


@dataclass(frozen=True)
class Manifest:
    pond: str
    epoch: int
    token: int
    nonce: str
    now_us: int
    kind: Kind = "epoch"
    catalog: str | None = None
    parallelism: int = 1
    parallelism_fixed: bool = False  # did a user choose it?  Else it follows the cores that there are
    positions: Mapping[str, Any] = field(default_factory=dict)
    watermarks: Mapping[str, Any] = field(default_factory=dict)
    pages: tuple[Page, ...] = ()
    recent: tuple[RunRef, ...] = ()
    gone: tuple[RunId, ...] = ()
    added: tuple[RunRef, ...] = ()
    removed: tuple[RunId, ...] = ()
    cursors: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0
    parent_nonce: str | None = None
    roots: Mapping[str, str] = field(default_factory=dict)
    restores: int | None = None  # of a rollback: the epoch whose files it names
    admitted: Mapping[str, Any] = field(default_factory=dict)
    promised: Mapping[str, int] = field(default_factory=dict)  # by scan: what the next epoch must reach
    arrivals: Mapping[str, Any] = field(default_factory=dict)  # by scan: partitions that were read or ended
    metrics: Mapping[str, Any] = field(default_factory=dict)
    savepoints: Mapping[str, int] = field(default_factory=dict)
    # detached sinks, and the epoch since which each is detached
    detached: Mapping[str, int] = field(default_factory=dict)
    paused: tuple[str, ...] = ()  # those of them that were paused, by a user or because they fell behind
    # By sink that gathers epochs: the last epoch of its next delivery, fixed before it is delivered (law 7).
    gathered: Mapping[str, int] = field(default_factory=dict)
    # Late rows in buckets before these were cleared: readers do not see them, backfills of new views do.
    cleared: Mapping[str, int] = field(default_factory=dict)
    # Clients that number their batches, and the last batch of each that was executed: see `state.inbox`.
    clients: Mapping[str, int] = field(default_factory=dict)
    # By source that may shed rows: the settings, what was decided last, and the splits that owe rows.
    shedding: Mapping[str, Any] = field(default_factory=dict)
    # Settings that were changed while the pond ran, and whether it is paused: see `control.live_settings`.
    settings: Mapping[str, Any] = field(default_factory=dict)
    backfill: BackfillProgress | None = None  # the running backfill of new views
    format: int = FORMAT

    @property
    def stopped_sinks(self) -> dict[str, Literal["paused", "detached"]]:
        """Sinks that receive nothing, and how that is called."""
        return {name: "paused" if name in self.paused else "detached" for name in self.detached}

    def encode(self) -> bytes:
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["pages"] = [[p.name, p.runs] for p in self.pages]
        data.pop("backfill")
        data[STORED_BACKFILL] = None if self.backfill is None else self.backfill.to_json()
        data["recent"] = [ref_to_json(r) for r in self.recent]
        data["added"] = [ref_to_json(r) for r in self.added]
        return sealed(data)

    @staticmethod
    def decode(raw: bytes, *, name: str = "manifest") -> Manifest:
        data = unsealed(raw, name)
        try:
            data["pages"] = tuple(Page(n, r) for n, r in data["pages"])
            data["recent"] = tuple(ref_from_json(r) for r in data["recent"])
            data["added"] = tuple(ref_from_json(r) for r in data["added"])
            running = data.pop(STORED_BACKFILL, None)
            data["backfill"] = None if running is None else BackfillProgress.from_json(running)
            data["paused"] = tuple(data.get("paused", ()))
            data["gone"] = tuple((f, s, h) for f, s, h in data["gone"])
            data["removed"] = tuple((f, s, h) for f, s, h in data["removed"])
            known = {f.name for f in dataclasses.fields(Manifest)}
            return Manifest(**{k: v for k, v in data.items() if k in known})
        except (ValueError, KeyError, TypeError, IndexError) as broken:
            raise _damaged(name, raw, f"{type(broken).__name__}: {broken}") from broken


def unsealed(raw: bytes, name: str) -> dict[str, Any]:
    """Parse and verify what `sealed` wrote; DataError says why it is invalid."""
    try:
        data = json.loads(raw)
        version = data["format"]
        newer = version > FORMAT
    except (ValueError, KeyError, TypeError, RecursionError) as broken:
        raise _damaged(name, raw, f"{type(broken).__name__}: {broken}") from broken
    if newer:
        raise DataError(
            "this pond was written by a newer version of millpond",
            detail=f"{name} has format {version}, this version reads up to {FORMAT}",
            hint="upgrade: pip install --upgrade millpond",
        )
    if not has_seal(raw):
        raise _damaged(name, raw, "its checksum does not match its content")
    return dict(data)


def _damaged(name: str, raw: bytes, why: str) -> DataError:
    return DataError(
        f"{name} cannot be read",
        detail=f"{len(raw)} bytes, {why}",
        hint="the file is damaged: keep it, and restore it from a copy of the pond",
    )


def is_retained(head: Manifest, epoch: int) -> bool:
    """Can an epoch be read, according to the head?"""
    return head.floor <= epoch <= head.epoch or epoch in head.savepoints.values()


def ref_to_json(ref: RunRef) -> list[Any]:
    """[table, file, segment, bucket, lo, hi, rows, bytes, h_min, h_max, kind]; hashes in hex."""
    return [
        ref.table,
        ref.file,
        ref.segment,
        ref.bucket,
        ref.lo,
        ref.hi,
        ref.rows,
        ref.bytes,
        f"{ref.h_min:016x}",
        f"{ref.h_max:016x}",
        ref.kind,
    ]


def ref_from_json(v: Sequence[Any]) -> RunRef:
    return RunRef(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], int(v[8], 16), int(v[9], 16), v[10])


def encode_page(refs: Iterable[RunRef]) -> bytes:
    return sealed({"format": FORMAT, "runs": [ref_to_json(r) for r in refs]})


def decode_page(raw: bytes, *, name: str) -> tuple[RunRef, ...]:
    data = unsealed(raw, name)
    try:
        return tuple(ref_from_json(r) for r in data["runs"])
    except (ValueError, KeyError, TypeError, IndexError) as broken:
        raise _damaged(name, raw, f"{type(broken).__name__}: {broken}") from broken


def check(child: Manifest, parent: Manifest | None) -> None:
    """Check the rules of a manifest, each by name; run before every commit and on every read of a pair."""
    if parent is None:
        if child.epoch != 0:
            raise InternalError("the first manifest must be epoch 0", detail=f"epoch {child.epoch}")
        return
    rules = {
        "epoch follows its parent": child.epoch == parent.epoch + 1,
        "pond stays the same": child.pond == parent.pond,
        "token never falls": child.token >= parent.token,
        "time never falls": child.now_us >= parent.now_us,
        "floor never falls": child.floor >= parent.floor,
        "parent is the one it was computed from": child.parent_nonce == parent.nonce,
        "a group of epochs keeps its end until it was delivered": all(
            child.gathered.get(sink) == end or child.cursors.get(sink, -1) >= end
            for sink, end in parent.gathered.items()
        ),
    }
    if child.kind != "rollback":
        rules["watermarks only rise"] = all(
            child.watermarks.get(step, {}).get("bound") is not None
            and child.watermarks[step]["bound"] >= before["bound"]
            for step, before in parent.watermarks.items()
            if before.get("bound") is not None and step in child.watermarks
        )
    broken = [name for name, holds in rules.items() if not holds]
    if broken:
        raise InternalError(
            "a manifest breaks its rules: " + "; ".join(broken),
            detail=f"child epoch {child.epoch} token {child.token}, "
            f"parent epoch {parent.epoch} token {parent.token}",
            epoch=child.epoch,
        )


@dataclass(frozen=True)
class FoldedListing:
    """The listing of a manifest after a change, and the pages that must be written before it."""

    pages: tuple[Page, ...]
    recent: tuple[RunRef, ...]
    gone: tuple[RunId, ...]
    new_pages: tuple[tuple[str, tuple[RunRef, ...]], ...]


def fold(
    pages: Sequence[Page],
    recent: Sequence[RunRef],
    gone: Sequence[RunId],
    added: Sequence[RunRef],
    removed: Iterable[RunId],
    *,
    read_page: Callable[[str], Sequence[RunRef]],
    name_page: Callable[[], str],
    fold_at: int = FOLD_AT,
    page_runs: int = PAGE_RUNS,
) -> FoldedListing:
    """Apply added and removed runs to a listing; write pages only when the short list has become long.

    Only pages that lost a run are rewritten, so the bytes of a fold follow what changed since the last one.
    """
    dead = set(removed)
    young = [r for r in (*recent, *added) if run_id(r) not in dead]
    dead -= {run_id(r) for r in (*recent, *added)}
    lost = [*gone, *sorted(dead)]
    if len(young) + len(lost) <= fold_at:
        return FoldedListing(tuple(pages), tuple(young), tuple(lost), ())
    lost_set = set(lost)
    unchanged: list[Page] = []
    loose: list[RunRef] = []
    for page in pages:
        refs = read_page(page.name)
        alive = [r for r in refs if run_id(r) not in lost_set] if lost_set else refs
        if len(alive) == len(refs) and (len(refs) >= page_runs // 2 or not young):
            unchanged.append(page)
        else:
            loose.extend(alive)
    loose.extend(young)
    fresh = []
    for start in range(0, len(loose), page_runs):
        fresh.append((name_page(), tuple(loose[start : start + page_runs])))
    return FoldedListing((*unchanged, *(Page(n, len(r)) for n, r in fresh)), (), (), tuple(fresh))
