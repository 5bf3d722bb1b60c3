"""User code per key: state, timers, time to live."""
