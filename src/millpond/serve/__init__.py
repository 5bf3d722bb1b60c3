"""Reads views from any process."""
