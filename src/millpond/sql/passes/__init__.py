"""Rewriting of bound plans: each pass is a plain function that keeps the rows of a relation."""
