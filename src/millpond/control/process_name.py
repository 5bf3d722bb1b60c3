"""Names a process so that others on the same machine can tell whether it still runs.

The name is the boot of the machine, the namespace of its process numbers, the
number, and when the process began: no other process ever has it.  Where the
system does not tell these (it is Linux that does) there is no name, and nobody is
taken for dead.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"
_STATE, _FLAGS, _BEGAN = 0, 6, 19  # in a process's stat, counted from behind its command
_DEAD = ("Z", "X")  # ended, and waiting for its parent to ask how
_EXITING = 4  # of the flags
_KILLED = 1 << 8  # SIGKILL among the signals that are pending

_instance: tuple[int, str] | None = None  # (process number, id)


def own() -> str | None:
    """The name of this process."""
    here = _machine()
    facts = _facts(os.getpid())
    return None if here is None or facts is None else f"{here}/{os.getpid()}/{facts[_BEGAN]}"


def instance() -> str:
    """A random id of this process; a forked process has another one."""
    global _instance
    if _instance is None or _instance[0] != os.getpid():
        _instance = (os.getpid(), secrets.token_hex(8))
    return _instance[1]


def is_gone(name: str | None) -> bool:
    """Has this process ended for certain? One elsewhere has not, as far as anybody here knows."""
    if name is None:
        return False
    machine, number, began = name.rsplit("/", 2)
    if machine != _machine():
        return False
    facts = _facts(int(number))
    if facts is None or facts[_STATE] in _DEAD or facts[_BEGAN] != began:
        return True
    return bool(int(facts[_FLAGS]) & _EXITING) or _is_killed(int(number))


def is_here(name: str | None) -> bool:
    """Is it a process of this machine, about which the system here knows?"""
    return name is not None and name.rsplit("/", 2)[0] == _machine()


def _is_killed(number: int) -> bool:
    """Was a process killed that has not ended yet?"""
    try:
        lines = (_PROC / str(number) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return any(
        int(line.split()[1], 16) & _KILLED for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))
    )


def _machine() -> str | None:
    try:
        return f"{_BOOT.read_text().strip()}/{os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return None


def _facts(number: int) -> list[str] | None:
    """What the system says of a process; None where there is none of this number."""
    try:
        return (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
