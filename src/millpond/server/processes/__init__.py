"""Serves PostgreSQL clients by several processes: `millpond serve --processes N`.

The main process accepts connections and hands each to the process that has the fewest.  It alone runs the
pipeline, HTTP and Arrow Flight SQL.
"""
