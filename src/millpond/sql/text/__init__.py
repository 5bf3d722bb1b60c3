"""SQL as text: statements, types, options, dialects, and errors at the user's position."""
