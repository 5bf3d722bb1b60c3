"""State: runs, tables, manifests and the store they live in."""
