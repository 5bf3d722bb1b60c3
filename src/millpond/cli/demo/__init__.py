"""`millpond demo`: a real pipeline on Spark, killed, recovered, rescaled and read in the past.

The pipeline runs in a separate process; this side only starts and kills it, sends commands through the inbox
and reads the pond, as any other process could.
"""
