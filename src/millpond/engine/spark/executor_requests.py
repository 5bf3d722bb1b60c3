"""Asks the cluster for executors, and gives them back.

`SparkContext` has methods for it that PySpark does not show; standalone, YARN and Kubernetes support them.  A
lost executor is replaced by the cluster, up to the number that was asked for.

Law: executors have no state (law 4), so giving one back costs the time of the tasks that it ran, and no row.
"""

from __future__ import annotations

import logging
from typing import Any

from millpond.engine.spark.executors import executor_count

log = logging.getLogger("millpond.engine")
DYNAMIC = "spark.dynamicAllocation.enabled"


class ExecutorRequests:
    def __init__(self, context: Any) -> None:
        self._context = context
        # Counted once: while an executor comes or goes, Spark has its cores in one place and not in another.
        self.cores_each = self._count_cores()
        self._wanted: int | None = None  # None: nothing was asked for yet, the cluster decided

    @property
    def supported(self) -> bool:
        """Can the number be changed?  Spark's dynamic allocation would undo a request."""
        return str(self._scala.conf().get(DYNAMIC, "false")).lower() != "true"

    @property
    def wanted(self) -> int:
        """The number that was last requested; before the first request, the current number."""
        return executor_count(self._context) if self._wanted is None else self._wanted

    def request(self, count: int) -> None:
        """Request a number of executors; surplus ones end now, the newest first.

        A cluster that refuses is no reason to stop: the pipeline runs on with what it has.
        """
        from py4j.protocol import Py4JError

        self._wanted = count
        try:
            self._change(count)
        except Py4JError as error:
            log.warning("the cluster refused to change the executors to %s: %s", count, error)

    def _count_cores(self) -> int:
        """The cores of one executor."""
        configured = str(self._scala.conf().get("spark.executor.cores", ""))
        if configured.isdecimal():
            return int(configured)
        # Spark's default parallelism is no measure: it is never below two.
        total = int(self._scala.schedulerBackend().totalCoreCount())
        return max(1, total // max(1, executor_count(self._context)))

    def _change(self, count: int) -> None:
        self._set_total(count)
        names = [name for name in self._scala.getExecutorIds().mkString(",").split(",") if name]
        surplus = sorted(names, key=lambda name: (len(name), name))[count:]
        if surplus:
            java: Any = self._context._jvm
            self._scala.killExecutors(java.org.apache.spark.api.python.PythonUtils.toSeq(surplus))
            self._set_total(count)  # Spark subtracts those that it ends from what was asked for

    def _set_total(self, count: int) -> None:
        java: Any = self._context._jvm
        hosts = java.org.apache.spark.api.python.PythonUtils.toScalaMap(java.java.util.HashMap())
        self._scala.requestTotalExecutors(count, 0, hosts)

    @property
    def _scala(self) -> Any:
        return self._context._jsc.sc()
