"""Sources: where rows come from, one source per file.

A source supports *replay* (the same offsets give the same rows), or it is *staged*: its rows are written to
files once and read from there.
"""
