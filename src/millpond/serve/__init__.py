"""Serving: reading views from any process."""
