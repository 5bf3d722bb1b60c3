"""Where rows come from: one source a file.

A source promises *replay* (the same offsets give the same bytes) or is
*staged*: read once into an input run, then admitted from it.
"""
