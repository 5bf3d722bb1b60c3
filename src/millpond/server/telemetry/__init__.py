"""Traces for OpenTelemetry: a span for each epoch and each statement, when an exporter is configured."""
