"""What one can say after `millpond`: one command, or a few that belong together, a file."""
