"""Synopses: mergeable approximations of a group with constant state and a stated error.

Law: a sketch is a function of its rows (or, for quantiles, frequent values and samples, of the
stored sketch and the epoch's rows), never of the order or the tasks in which they arrived.
"""
