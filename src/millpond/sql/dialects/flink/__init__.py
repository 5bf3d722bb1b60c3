"""Flink's SQL: its statements, windows and functions, where they mean the same here."""
