"""Places the tasks of an epoch on the hosts that have the runs of their hash range in their disk cache.

A host caches what its tasks read and write.  So a task is placed where the same hash range was processed
before, and moves only if its host is gone or has more than its share.

Law 4: a placement is a preference.  A task runs anywhere, and then its host fetches what it needs.
Law: a pure function of the hosts and of the placement before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def place(tasks: int, hosts: Mapping[str, int], before: Sequence[str] = ()) -> tuple[str, ...]:
    """The host of each task, in proportion to the executors of each host.

    `before` has the hosts of the tasks of an earlier epoch, which may have had another number of tasks.

    >>> place(4, {"a": 1, "b": 1})
    ('a', 'a', 'b', 'b')
    >>> place(4, {"a": 1, "b": 1, "c": 2}, ("b", "b", "a", "a"))
    ('b', 'c', 'a', 'c')
    """
    total = sum(hosts.values())
    if not total:
        return ()
    room = {host: tasks * count // total for host, count in hosts.items()}
    spare = tasks - sum(room.values())  # tasks of hosts that get one more, at most one each
    more = {host for host, count in hosts.items() if tasks * count % total}
    placed: list[str | None] = [None] * tasks
    for task, host in _wishes(tasks, hosts, before):
        if placed[task] is not None:
            continue
        if not room[host]:
            if not spare or host not in more:
                continue
            more.discard(host)
            spare -= 1
            room[host] += 1
        room[host] -= 1
        placed[task] = host
    return tuple(str(host) for host in placed)


def _wishes(tasks: int, hosts: Mapping[str, int], before: Sequence[str]) -> list[tuple[int, str]]:
    """All pairs of a task and a host: first where most of the task's hash range was before."""
    had = {(task, host): 0 for task in range(tasks) for host in hosts}
    earlier_tasks = len(before)
    for task in range(tasks):
        # Task t of n has the share [t/n, (t+1)/n) of all hashes, here in units of 1 / (n * earlier tasks).
        begin, end = task * earlier_tasks, (task + 1) * earlier_tasks
        for earlier in range(begin // tasks, -(-end // tasks)):
            if (task, before[earlier]) in had:
                shared = min(end, (earlier + 1) * tasks) - max(begin, earlier * tasks)
                had[task, before[earlier]] += shared
    return sorted(had, key=lambda pair: (-had[pair], pair[1] if not had[pair] else "", pair))
