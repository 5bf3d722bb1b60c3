"""The driver: admits input, commits epochs, and manages sinks, compaction and garbage collection."""
