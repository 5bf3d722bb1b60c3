"""Spark's transformWithState in Python: a value state in RocksDB, read and updated per record.

Law: a timed run has read every row of its input, each in a committed micro-batch. It needs protobuf and, for
the form in pandas, pandas: it lives in an environment of its own, with the version of Spark that we use.
"""

from __future__ import annotations

from pathlib import Path

import pyspark

from benchmarks.measure import confine
from benchmarks.peers import apart, command, spark_structured

REQUIREMENTS = (f"pyspark=={pyspark.__version__}", "pandas==3.1.1", "protobuf==7.36.2", "pyarrow==26.0.1")
NAMES = {"record": "spark", "once": "spark-once", "pandas": "spark-pandas"}


def python() -> Path:
    return apart.python("spark", *REQUIREMENTS)


def job(form: str, cores: int, files_per_trigger: int, shuffle_partitions: int) -> apart.Job:
    wanted = spark_structured.settings(cores, shuffle_partitions, Path("local"))
    del wanted["spark.local.dir"]
    task = {"settings": wanted, "files_per_trigger": files_per_trigger, "form": form}
    interpreter = python()
    return apart.Job(
        name=NAMES[form],
        system=f"Spark transformWithState{'InPandas' if form == 'pandas' else ''} {pyspark.__version__}",
        interpreter=interpreter,
        script=Path(__file__).with_name("spark_state_job.py"),
        task=task,
        settings={**wanted, "maxFilesPerTrigger": str(files_per_trigger), "state": form},
        environment={
            "PYSPARK_PYTHON": str(interpreter),
            "PYSPARK_DRIVER_PYTHON": str(interpreter),
            "SPARK_LOCAL_DIRS": "{work}/local",
        },
    )


def main() -> None:
    parser = command.parser(__doc__ or "")
    parser.add_argument("--form", choices=sorted(NAMES), default="record")
    parser.add_argument("--files-per-trigger", type=int, default=1)
    parser.add_argument("--shuffle-partitions", type=int, default=2)
    arguments = parser.parse_args()
    confine(arguments.cores)
    chosen = job(arguments.form, arguments.cores, arguments.files_per_trigger, arguments.shuffle_partitions)
    apart.main(chosen, arguments)


if __name__ == "__main__":
    main()
