"""Runs: immutable, sorted files of state rows; writing, searching and merging them."""
