"""Vectorised building blocks of operators: expressions, comparisons, grouping, accumulators, ranking."""
