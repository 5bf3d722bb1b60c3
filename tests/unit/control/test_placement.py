"""Tasks go to the hosts that have their hash range, and hosts get their share of tasks."""

from __future__ import annotations

import random
from collections import Counter

from millpond.control.placement import place


def test_hosts_get_tasks_in_proportion_to_their_executors() -> None:
    assert Counter(place(6, {"a": 1, "b": 2})) == {"a": 2, "b": 4}
    assert Counter(place(5, {"a": 1, "b": 1, "c": 1})).most_common(1)[0][1] == 2
    assert place(3, {}) == ()


def test_neighbouring_ranges_share_a_host() -> None:
    assert place(4, {"a": 1, "b": 1}) == ("a", "a", "b", "b")


def test_nothing_moves_while_the_hosts_stay() -> None:
    rng = random.Random(1)
    for _ in range(200):
        hosts = {name: rng.randint(1, 3) for name in "abcde"[: rng.randint(1, 5)]}
        tasks = rng.randint(1, 12)
        first = place(tasks, hosts, tuple(rng.choice("abcdefg") for _ in range(rng.randint(0, 9))))
        assert len(first) == tasks and set(first) <= set(hosts)
        assert place(tasks, dict(reversed(hosts.items())), first) == first


def test_a_lost_host_moves_only_its_tasks() -> None:
    before = place(6, {"a": 1, "b": 1, "c": 1})
    after = place(6, {"a": 1, "b": 1}, before)
    assert all(new == old for new, old in zip(after, before, strict=True) if old != "c")
    assert Counter(after) == {"a": 3, "b": 3}


def test_a_new_host_takes_only_its_share() -> None:
    before = place(6, {"a": 1, "b": 1})
    after = place(6, {"a": 1, "b": 1, "c": 1}, before)
    assert sum(new != old for new, old in zip(after, before, strict=True)) == 2
    assert Counter(after) == {"a": 2, "b": 2, "c": 2}


def test_other_numbers_of_tasks_keep_most_of_the_hash_range() -> None:
    before = ("a", "a", "b", "b")
    assert place(8, {"a": 1, "b": 1}, before) == ("a", "a", "a", "a", "b", "b", "b", "b")
    assert place(2, {"b": 1, "a": 1}, before) == ("a", "b")
    assert place(1, {"a": 1, "b": 1}, ("b", "b", "a")) == ("b",)
