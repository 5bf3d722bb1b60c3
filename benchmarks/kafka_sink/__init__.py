"""Rows from a topic to a topic, exactly once: Millpond beside Flink."""
