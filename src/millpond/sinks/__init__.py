"""Where changes go: one sink a file.

A sink hears of an epoch after its commit, in order, and may hear of it again
after a crash.  One that stores (pond id, epoch) with the data shows each epoch
exactly once; any other gets the id, and at least once (law 7).
"""
