"""Access control: the users of a pond, and what each may do."""
