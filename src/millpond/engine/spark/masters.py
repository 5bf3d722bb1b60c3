"""Tells a master that runs tasks in the driver's process from a cluster."""

from __future__ import annotations


def is_local_master(master: str) -> bool:
    """Do tasks run in the JVM of the driver?

    >>> is_local_master("local[2]"), is_local_master("local-cluster[2,1,1024]"), is_local_master("yarn")
    (True, False, False)
    """
    return master == "local" or master.startswith("local[")
