"""The engine: what turns an epoch into tasks, on Spark or in this process."""
