"""Passes over task plans: one function per file, each replaces items by faster ones with the same result."""
