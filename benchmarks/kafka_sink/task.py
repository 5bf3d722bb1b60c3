"""The arguments of every contender: where the bids are, and the topic to write to."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("auction", "bidder", "price")


@dataclass(frozen=True)
class Task:
    brokers: str
    read: str  # the topic with the bids
    write: str
    rows: int
    cores: int
    out: Path  # the outcome, as JSON

    def arguments(self) -> list[str]:
        found = {"brokers": self.brokers, "read": self.read, "write": self.write, "rows": str(self.rows)}
        found |= {"cores": str(self.cores), "out": str(self.out)}
        return [part for name, value in found.items() for part in (f"--{name}", value)]


def from_command_line(description: str) -> Task:
    parser = argparse.ArgumentParser(description=description)
    for name in ("brokers", "read", "write"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("rows", "cores"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return Task(**vars(parser.parse_args()))
