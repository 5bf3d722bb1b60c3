"""Manifests: one committed epoch each, and what keeps an epoch readable."""
