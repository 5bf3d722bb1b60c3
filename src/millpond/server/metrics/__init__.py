"""Prometheus metrics of a pond and its server, and traces for OpenTelemetry."""
