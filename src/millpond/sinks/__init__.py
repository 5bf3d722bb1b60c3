"""Sinks, which receive the changes of views; one per file.

A sink receives each epoch after its commit, in order, and may receive it again after a crash.  A sink that
stores (pond id, epoch) with the data shows each epoch exactly once; any other gets the id, and each epoch at
least once (law 7).  `sink.py` has the protocols, `delivery.py` what a sink receives.
"""
