"""Tells Spark on which host each task of a level should run.

Spark asks an RDD for the preferred locations of its partitions.  Those of a shuffle cannot be set, those of a
list can (`makeRDD`).  So partition i of the shuffle is paired with partition i of a list with one element for
each task: the diagonal of their Cartesian product, for which nothing is computed or sent.  The product has
tasks² partitions in the driver, so beyond `TASKS_MAX` tasks Spark decides alone.

Law 4: where the host is gone or busy, Spark runs the task elsewhere at once (`spark.locality.wait`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from millpond.control.placement import place

TASKS_MAX = 256
LOOK_EVERY_S = 2.0  # asking for the executors takes two milliseconds


class PreferredHosts:
    """Makes RDDs whose partitions have preferred hosts."""

    def __init__(self, context: Any) -> None:
        self._jvm = context._jvm
        self._spark = context._jsc.sc()
        self._hints: dict[tuple[str, ...], tuple[Any, Any]] = {}

    def prefer(self, rdd: Any, hosts: Sequence[str]) -> Any:
        """The same RDD of bytes, with a preferred host for each of its partitions."""
        hints, diagonal = self._made(tuple(hosts))
        product = hints.cartesian(rdd.toJavaRDD()).rdd()
        pruned = self._jvm.org.apache.spark.rdd.PartitionPruningRDD.create(product, diagonal)
        tag = pruned.elementClassTag()
        pairs = self._jvm.org.apache.spark.api.java.JavaPairRDD.fromRDD(pruned, tag, tag)
        return self._jvm.PythonRDD.valueOfPair(pairs).rdd()

    def _made(self, hosts: tuple[str, ...]) -> tuple[Any, Any]:
        """An RDD with one partition for each task, and the numbers of the partitions on the diagonal."""
        if hosts not in self._hints:
            if len(self._hints) > 2 * TASKS_MAX:  # executors came and went very often
                self._hints.clear()
            to_seq = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq
            hints = to_seq([self._jvm.scala.Tuple2("", to_seq([host])) for host in hosts])
            tag = self._jvm.scala.reflect.ClassTag.Object()
            made = self._spark.makeRDD(hints, tag)
            java = self._jvm.org.apache.spark.api.java.JavaRDD.fromRDD(made, tag)
            places = to_seq([task * (len(hosts) + 1) for task in range(len(hosts))]).toSet()
            self._hints[hosts] = (java, places)
        return self._hints[hosts]


class HostPlacement:
    """The preferred host of each task of the next epoch, for each number of tasks."""

    def __init__(self, context: Any, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._spark = context._jsc.sc()
        self._monotonic = monotonic
        self._driver = str(self._spark.conf().get("spark.driver.host"))
        self._looked = -LOOK_EVERY_S
        self._hosts: Counter[str] = Counter()
        self._placed: dict[int, tuple[str, ...]] = {}
        self.last: tuple[
            str, ...
        ] = ()  # the last placement, from which one for another number of tasks is made

    def hosts(self, tasks: int) -> tuple[str, ...]:
        """The host of each task; none where there is no choice, or there are too many tasks."""
        self._look()
        if len(self._hosts) < 2 or tasks > TASKS_MAX:
            return ()
        if tasks not in self._placed:
            self._placed[tasks] = place(tasks, self._hosts, self.last)
        self.last = self._placed[tasks]
        return self.last

    def _look(self) -> None:
        """Move tasks when the hosts of executors have changed."""
        now = self._monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        names = str(self._spark.getExecutorMemoryStatus().keys().mkString(","))
        hosts = Counter(name.rpartition(":")[0] for name in names.split(","))
        hosts[self._driver] -= 1  # the driver is listed, too
        hosts = +hosts
        if hosts != self._hosts:
            self._hosts = hosts
            self._placed = {tasks: place(tasks, hosts, was) for tasks, was in self._placed.items()}
