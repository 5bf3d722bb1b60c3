"""Stores of files: a folder, an object store, memory."""
