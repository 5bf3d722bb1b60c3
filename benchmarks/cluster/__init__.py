"""Millpond and Spark Structured Streaming on one standalone cluster, with S3 and with a local folder.

| file | what it holds |
|---|---|
| `task.py` | what a contender is asked to do, and what it answers |
| `on_millpond.py`, `on_spark.py` | the contenders, each in a process of its own: the driver |
| `run.py` | starts the cluster, runs the contenders in turns, prints and keeps the figures |
"""
