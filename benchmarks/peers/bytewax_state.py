"""Bytewax: stateful_map with recovery on, an epoch (and so a snapshot) every five seconds."""

from __future__ import annotations

import socket
from pathlib import Path

from benchmarks.measure import confine
from benchmarks.peers import apart, command

VERSION = "0.21.1"
EPOCH_SECONDS = 5


def python() -> Path:
    return apart.python("bytewax", f"bytewax=={VERSION}", "pyarrow==26.0.1")


def addresses(n: int) -> list[str]:
    """Free ports of this machine, for the workers to meet at."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return found


def job(workers: int, processes: int, batch_rows: int) -> apart.Job:
    shown = {
        "workers": workers,
        "processes": processes,
        "batch_rows": batch_rows,
        "epoch_seconds": EPOCH_SECONDS,
    }
    return apart.Job(
        name="bytewax",
        system=f"Bytewax {VERSION}",
        interpreter=python(),
        script=Path(__file__).with_name("bytewax_state_job.py"),
        task={**shown, "addresses": addresses(processes) if processes > 1 else []},
        settings={name: str(value) for name, value in shown.items()},
    )


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--processes", type=int, default=1, help="that share the workers, one for each core")
    parser.add_argument("--batch-rows", type=int, default=1000)
    arguments = parser.parse_args()
    confine(arguments.cores)
    apart.main(job(arguments.cores, arguments.processes, arguments.batch_rows), arguments)


if __name__ == "__main__":
    main()
