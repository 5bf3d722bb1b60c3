"""Starts a Spark session that suits Millpond, and checks one that a user passes.

Law: a session that cannot work is refused before the first epoch, with a hint
how to fix it; one that is only slow gets advice, once.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.engine.spark.daemon import ENVIRONMENT
from millpond.engine.spark.executors import wait_for_executors
from millpond.engine.spark.masters import is_local_master
from millpond.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
DAEMON = "millpond.engine.spark.daemon"

UNIX_SOCKET = "spark.python.unix.domain.socket.enabled"
FAULT_HANDLER = "spark.python.worker.faulthandler.enabled"
WORKER_REUSE = "spark.python.worker.reuse"
DAEMON_MODULE = "spark.python.daemon.module"
PYSPARK_MEMORY = "spark.executor.pyspark.memory"
CLEANER = "spark.cleaner.referenceTracking"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# The JVM transports frames and has few hot loops.  Fully optimizing only code that ran ten times as often as
# usual saves a third of its CPU in the first ten seconds, and makes no difference later.
COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

# Nearly nothing that a job allocates in the JVM survives: some 60 MiB after any number of epochs.  Java's
# default collector lets such a heap grow towards its limit; this one uses a third less with the same CPU, in
# large epochs, too.  It stops all threads and works with one, which is fine for few cores.  It collects the
# old generation only when the heap is full, so Spark's periodic collection is made more frequent.
SMALL_HEAP = "-XX:+UseSerialGC -Xms192m -Xmn96m"
FEW_CORES = 4
OLD_EVERY = {"spark.cleaner.periodicGC.interval": "5min"}
# Environment variables from which Java and Spark read more options.
JAVA_ENVIRONMENT = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")

SETTINGS: Mapping[str, str] = {
    # TCP between the JVM and Python stalls for 40 ms per level (Nagle's algorithm and delayed acks).
    UNIX_SOCKET: "true",
    # Warm, frozen workers save a quarter of an epoch's minimum time, and a second of the first epoch.
    DAEMON_MODULE: DAEMON,
    WORKER_REUSE: "true",
    # A worker that dies leaves the name of its current step: see `engine.spark.breadcrumb`.
    FAULT_HANDLER: "true",
    # Compressing frames costs a third of an exchange's CPU; turn it on where the network is the bottleneck.
    "spark.shuffle.compress": "false",
    # Every epoch broadcasts its levels' code, and Spark allocates a block for each: 4 MiB, where 100 KB do.
    "spark.broadcast.blockSize": "256k",
    # Compaction runs beside the chain and must not delay it.
    "spark.scheduler.mode": "FAIR",
    # A task can run anywhere (law 4), so waiting three seconds for a preferred executor is a waste.
    "spark.locality.wait": "0s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark stores records of the last 1000 jobs and 100,000 tasks even with its UI disabled.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    **{f"spark.executorEnv.{name}": value for name, value in ENVIRONMENT.items()},
}

# Settings for a master other than local[…], where the user states nothing else.  With Spark's defaults a
# worker that was killed costs 5 to 14 s, and one whose link stays down 103 s: every fetch from it is tried
# four times, five seconds apart, and each attempt waits two minutes for a connection that is gone.
CLUSTER_SETTINGS: Mapping[str, str] = {
    "spark.shuffle.io.retryWait": "500ms",
    "spark.shuffle.io.maxRetries": "3",
    "spark.shuffle.io.connectionTimeout": "10s",
    "spark.shuffle.io.connectionCreationTimeout": "3s",
    "spark.rpc.io.connectionCreationTimeout": "10s",
    # A lost executor is noticed by its heartbeats.
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "2s",
    # The host that has the state of a task matters (`engine.spark.preferred_hosts`), not that of its input.
    "spark.shuffle.reduceLocality.enabled": "false",
    # A fetch that failed tells that all outputs of that host are gone: they are made again in one attempt.
    "spark.files.fetchFailure.unRegisterOutputOnHost": "true",
    "spark.stage.maxConsecutiveAttempts": "10",
    "spark.task.maxFailures": "8",
    # A task that takes much longer than its siblings is started elsewhere, too; the first one counts (law 3).
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "3",
    "spark.speculation.minTaskRuntime": "2s",
    # The file with a store's credentials must never be taken for another one.
    "spark.files.overwrite": "false",
}

# Failed tasks reach the caller as errors; Spark would also print each of them with its stack.
# The gateway's level equals the root's, else it prints that it changes the root's.
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} spark %p %c{1}: %m%n%ex
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


_SUBMITTED = {"--master": "spark.master", "--name": "spark.app.name"}


def make_session(
    master: str | None = None, app_name: str = "millpond", extra: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with Millpond's settings; `extra` overrides them.

    A process holds one Spark context.  If one is running it is used as it is,
    and `check_session` says what it lacks.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkContext._active_spark_context
    if running is not None:
        if master is not None and running.master != master:
            raise InvalidError(
                "a spark context is already running in this process",
                detail=f"running on {running.master}, asked for {master}",
                hint="stop it first, or pass its session",
            )
        return SparkSession.builder.getOrCreate()
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_java()
    submitted = submitted_settings()
    chosen = master or submitted.get("spark.master") or f"local[{_cores()}]"
    settings = settings_for(chosen, {**submitted, **(extra or {})})
    settings.pop("spark.master", None)
    app_name = settings.pop("spark.app.name", app_name)
    if chosen.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.NamedTemporaryFile("w", suffix=".properties", prefix="millpond-log4j-") as quiet:
        quiet.write(_LOG4J)
        quiet.flush()
        log = f"-Dlog4j2.configurationFile=file:{quiet.name}"
        settings[JAVA_OPTIONS] = f"{log} {settings[JAVA_OPTIONS]}"
        builder = SparkSession.builder.master(chosen).appName(app_name)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def is_running() -> bool:
    """Does this process have a Spark context?"""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def submitted_settings() -> dict[str, str]:
    """What `spark-submit` was told: its master and settings.

    In client mode they are in the JVM that started this process, else in PYSPARK_SUBMIT_ARGS.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    return parsed_submit_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))


def parsed_submit_arguments(text: str) -> dict[str, str]:
    """
    >>> parsed_submit_arguments("--master spark://h:7077 --conf spark.a=1 --conf 'spark.b=x y' pyspark-shell")
    {'spark.master': 'spark://h:7077', 'spark.a': '1', 'spark.b': 'x y'}
    """
    found: dict[str, str] = {}
    words = iter(shlex.split(text))
    for word in words:
        option, _, value = word.partition("=")
        if option in ("--master", "--name", "--conf", "-c"):
            value = value or next(words, "")
            if option in ("--conf", "-c"):
                option, _, value = value.partition("=")
            found[_SUBMITTED.get(option, option)] = value
    return found


def _cores() -> int:
    """The cores that this process may use; a container often has fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def heap_settings(master: str, theirs: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The driver's JVM options for compilation and garbage collection, with the user's (`theirs`) last.

    Java refuses to start with two collectors, so ours is left out where the user chose one.

    >>> len(heap_settings("local[2]", "", {})), len(heap_settings("local[2]", "-XX:+UseG1GC", {}))
    (2, 1)
    """
    everywhere = " ".join([theirs, *(environment.get(name, "") for name in JAVA_ENVIRONMENT)])
    chosen = re.search(r"-XX:\+Use\w+GC\b", everywhere) is not None
    if chosen or local_cores(master) > FEW_CORES:
        return {JAVA_OPTIONS: f"{COMPILE_LATER} {theirs}".strip()}
    return {JAVA_OPTIONS: f"{COMPILE_LATER} {SMALL_HEAP} {theirs}".strip(), **OLD_EVERY}


def local_cores(master: str) -> float:
    """The cores of the driver's JVM that run tasks; infinite where that is not known.

    >>> local_cores("local[3]"), local_cores("local[2,4]"), local_cores("local"), local_cores("yarn")
    (3, 2, 1, inf)
    """
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if match is None:
        return math.inf
    return _cores() if match[1] == "*" else int(match[1] or 1)


def settings_for(master: str, extra: Mapping[str, str]) -> dict[str, str]:
    """All settings of a session on this master; the user's own come last."""
    settings = dict(SETTINGS)
    if not is_local_master(master):
        settings.update(CLUSTER_SETTINGS)
    source = Path(__file__).resolve().parents[2]
    if master.startswith("local") and source.name not in ("site-packages", "dist-packages"):
        # Run from a source tree: the workers must import the same tree.
        settings["spark.executorEnv.PYTHONPATH"] = str(source)
    settings.update(heap_settings(master, extra.get(JAVA_OPTIONS, ""), os.environ))
    settings.update({name: value for name, value in extra.items() if name != JAVA_OPTIONS})
    return settings


# -- checks -------------------------------------------------------------------


def check_session(session: SparkSession, on_wait: Callable[[str], None] | None = None) -> list[str]:
    """Refuse a session on which Millpond cannot run; returns advice on what makes it slow.

    Waits for executors, reports that to `on_wait`, and checks their Python with a small task on each core.
    """
    _refuse_connect(session)
    context = session.sparkContext
    if context._jsc is None or context._jsc.sc().isStopped():
        raise InvalidError("the spark session is stopped", hint="make a new one and pass that")
    if not session.version.startswith("4."):
        raise InvalidError(
            "this version of spark is not supported",
            detail=f"spark {session.version}, needed is 4.x",
            hint="install pyspark 4",
        )
    conf = _judged(context)
    if PYSPARK_MEMORY in conf:
        raise InvalidError(
            f"{PYSPARK_MEMORY} is set, and state is memory-mapped: it limits both",
            detail=f"got {conf[PYSPARK_MEMORY]}",
            hint=f"remove {PYSPARK_MEMORY}; give the executors memoryOverhead instead",
        )
    on_cluster = not is_local_master(str(context.master))
    if on_cluster:
        wait_for_executors(context, on_wait)
    _probe(context)
    return [*advice(conf), *(cluster_advice(context._jsc.sc().conf()) if on_cluster else [])]


def _judged(context: Any) -> dict[str, str]:
    """The settings that `check_session` reads, where they are set; reading all settings takes 20 ms."""
    conf = context._jsc.sc().conf()
    names = (PYSPARK_MEMORY, UNIX_SOCKET, WORKER_REUSE, DAEMON_MODULE, CLEANER, FAULT_HANDLER)
    return {name: conf.get(name) for name in names if conf.contains(name)}


def advice(conf: Mapping[str, str]) -> list[str]:
    """Advice on settings that make Millpond slower or larger than necessary."""
    found = []
    if conf.get(UNIX_SOCKET, "false") != "true":
        found.append(f"set {UNIX_SOCKET}=true: without it every level waits 40 ms for the network stack")
    if conf.get(WORKER_REUSE, "true") != "true":
        found.append(f"set {WORKER_REUSE}=true: without it every task starts a python process")
    if conf.get(DAEMON_MODULE) != DAEMON:
        found.append(
            f"set {DAEMON_MODULE}={DAEMON}: without it workers start cold and collect garbage slowly"
        )
    if conf.get(FAULT_HANDLER, "false") != "true":
        found.append(f"set {FAULT_HANDLER}=true: without it nobody knows in which step a worker crashed")
    if conf.get(CLEANER, "true") != "true":
        found.append(f"set {CLEANER}=true: without it shuffle files stay on disk until the session ends")
    return found


def cluster_advice(conf: Any) -> list[str]:
    """Recommended timeouts for a cluster session that the user started."""
    names = ("spark.shuffle.io.retryWait", "spark.network.timeout", "spark.speculation")
    missing = [f"{name}={CLUSTER_SETTINGS[name]}" for name in names if not conf.contains(name)]
    if not missing:
        return []
    return [f"set {', '.join(missing)}: with Spark's defaults a lost worker costs up to two minutes"]


def _refuse_connect(session: Any) -> None:
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise InvalidError(
            "a spark connect session has no RDDs, and the chain of levels is made of them",
            hint="make the session inside the cluster with SparkSession.builder.master(...)",
        )


def _probe(context: Any) -> None:
    """Run a task for each core that imports the engine in the executors' Python."""

    def imports(frames: Any) -> list[str]:
        import importlib

        importlib.import_module("millpond.engine.spark.chain")
        return [sys.executable for _ in frames]

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        cores = max(1, int(context.defaultParallelism))
        context.parallelize(range(cores), cores).mapPartitions(imports).collect()
    except (Py4JError, PySparkException) as error:
        raise _unfit(str(error)) from None


def _unfit(text: str) -> InvalidError:
    """Why the executors' Python cannot run our tasks, parsed from the text of the failed task."""
    if "PYTHON_VERSION_MISMATCH" in text:
        versions = re.search(r"worker.{0,40}?(\d+\.\d+).{0,80}?driver.{0,10}?(\d+\.\d+)", text, re.DOTALL)
        return InvalidError(
            "the executors run another python than the driver",
            detail=f"executors {versions[1]}, driver {versions[2]}" if versions else None,
            hint="set PYSPARK_PYTHON to the same version everywhere before the session starts",
        )
    if missing := re.search(r"No module named '?([\w.]+)", text):
        return InvalidError(
            f"the executors' python has no module {missing[1]}",
            hint="install millpond in the environment PYSPARK_PYTHON names on every executor",
        )
    return InvalidError(
        "a test task failed on this session",
        detail=" ".join(text.split())[:1000],
        hint="the executors' logs say more",
    )


# -- java ---------------------------------------------------------------------


def check_java() -> int:
    """The major version of the Java that Spark would start; raises an error that says how to install one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    hint = f"install it with: {install_command(sys.platform, shutil.which)}"
    if java is None:
        raise InvalidError("spark needs java 17 or newer, and there is no java on PATH", hint=hint)
    where = f"JAVA_HOME={home}" if home else java
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise InvalidError(
            f"spark needs java 17 or newer, and {java} cannot be run",
            detail=f"{where}: {error.strerror}",
            hint=f"unset JAVA_HOME, or {hint}" if home else hint,
        ) from error
    printed = done.stderr + done.stdout
    version = java_version(printed)
    if version is None:
        raise InvalidError(
            f"spark needs java 17 or newer, and {java} does not say its version",
            detail=f"exit code {done.returncode}: {printed.strip()[:200]}",
            hint=hint,
        )
    if version < JAVA_MIN:
        raise InvalidError(
            f"spark needs java {JAVA_MIN} or newer, and this is java {version}",
            detail=f"found {version} at {where}",
            hint=hint,
        )
    return version


def java_version(printed: str) -> int | None:
    """Parse the major version from the output of `java -version`.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_392"')
    (17, 8)
    """
    version = re.search(r'version "(\d+)(?:\.(\d+))?', printed)
    if version is None:
        return None
    major = int(version[1])
    return int(version[2]) if major == 1 and version[2] else major


def install_command(platform: str, which: Callable[[str], str | None]) -> str:
    """The command that installs Java here, with the package manager of this machine."""
    if platform == "darwin":
        return 'brew install openjdk@17 && export JAVA_HOME="$(brew --prefix openjdk@17)"'
    if platform == "win32":
        return "winget install EclipseAdoptium.Temurin.17.JRE"
    commands = {
        "apt-get": "sudo apt-get install -y openjdk-17-jre-headless (openjdk-21 where there is no 17)",
        "dnf": "sudo dnf install -y java-17-openjdk-headless",
        "yum": "sudo yum install -y java-17-openjdk-headless",
        "zypper": "sudo zypper install -y java-17-openjdk-headless",
        "pacman": "sudo pacman -S jre17-openjdk-headless",
        "apk": "sudo apk add openjdk17-jre-headless",
    }
    for tool, command in commands.items():
        if which(tool):
            return command
    return "a Java 17 build from https://adoptium.net, with JAVA_HOME naming its folder"
