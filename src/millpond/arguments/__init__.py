"""What callers of the Python API pass: names, schemas, durations; wrong calls become clear errors."""
