"""Millpond: a stateful stream processor in Python on Apache Spark."""
