"""Steering: admission, scaling, the lease."""
