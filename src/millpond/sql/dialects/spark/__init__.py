"""Spark's SQL (4.3, ANSI mode): each function and operator means what Spark says, or is refused by name."""
