"""Explains why a statement cannot be bound, in the words of its dialect and with the user's own text."""
