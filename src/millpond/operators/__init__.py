"""Operators: what one step does to a delta; one operator per file.

An operator takes deltas and the state of the last epoch, and returns deltas and
state changes.  It reads no clock, logs nothing and does not check its
neighbours.
"""
