"""Changes of the program between two epochs: backfill, migration, expiry of state."""
