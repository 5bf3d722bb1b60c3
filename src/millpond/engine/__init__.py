"""The engine: runs an epoch as tasks, on Spark or in this process."""
