"""User code of a process step run for many keys at once: one call for the next row of every key."""
