"""Vectorized user code of a process step: one call for the next row of many keys."""
