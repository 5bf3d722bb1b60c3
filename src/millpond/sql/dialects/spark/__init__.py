"""Spark SQL 4 with ANSI mode: `dialect="spark"`."""
