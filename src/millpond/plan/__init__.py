"""The plan: frozen nodes in a graph, cut into levels."""
