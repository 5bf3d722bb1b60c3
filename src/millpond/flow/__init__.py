"""Dataflows in Python: streams, keyed streams, views."""
