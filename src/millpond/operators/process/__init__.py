"""Process: a user's Python per key, with state, timers and time to live."""
