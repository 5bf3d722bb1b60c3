"""What a server gives its clients: point reads, scans, how soon a commit is seen, idle connections."""
