"""Law 3, by replay: every kept epoch of a pond, run again from its own records, comes out as it was committed."""

from __future__ import annotations

from millpond.errors import InvalidError
from millpond.pond import Pond


def replay_all(pond: Pond, last: int | None = None) -> int:
    """Replay what is kept, or the last of it; how many tables were compared."""
    compared = 0
    oldest = pond.head().floor
    for made in pond.epochs(last):
        if made.kind != "epoch":
            continue
        try:
            found = pond.replay(made.epoch)
        except InvalidError as error:
            # Before the oldest there is nothing to begin with; a savepoint's inbox may be gone.
            assert made.epoch <= oldest and "no longer kept" in error.message, error
            continue
        odd = {name: table.to_pylist() for name, table in found.differences.items()}
        assert found.same, (made.epoch, odd, found.counts, found.committed_counts)
        compared += found.tables
    return compared
