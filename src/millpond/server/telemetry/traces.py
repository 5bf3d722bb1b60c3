"""Spans for statements and epochs.

Law: without an exporter nothing is imported and nothing is measured.  A trace never fails a statement: the
exporter works in a thread of its own and drops what it cannot send.

The exporter is configured as every program with OpenTelemetry is: by the variables `OTEL_…`, of which
`OTEL_EXPORTER_OTLP_ENDPOINT` is enough, or by a tracer provider that the process has set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from millpond.errors import InvalidError
from millpond.masking import masked
from millpond.state.manifest.manifest import Manifest
from millpond.version import __version__

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
TEXT_MAX = 2_000  # characters of a statement in its span


class Traces:
    """Makes spans with a tracer of OpenTelemetry."""

    def __init__(self, provider: Any, *, owned: bool = False) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        self._tracer = provider.get_tracer("millpond", __version__)
        self._provider = provider
        self._owned = owned
        self._server_kind, self._status, self._code = SpanKind.SERVER, Status, StatusCode
        self._inside = set_span_in_context

    @contextmanager
    def statement(self, protocol: str, verb: str, text: str, user: str) -> Iterator[dict[str, Any]]:
        """A span around one statement; what is added to the mapping becomes attributes."""
        attributes = {
            "db.system": "millpond",
            "db.operation": verb,
            "db.statement": masked(text[: 2 * TEXT_MAX])[:TEXT_MAX],
            "db.user": user,
            "millpond.protocol": protocol,
        }
        found: dict[str, Any] = {}
        span = self._tracer.start_span(f"{verb}", kind=self._server_kind, attributes=attributes)
        try:
            yield found
        except BaseException as error:
            span.set_status(self._status(self._code.ERROR, masked(str(error)).partition("\n")[0]))
            span.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            for name, value in found.items():
                if value is not None:
                    span.set_attribute(name, value)
            span.end()

    def committed(self, manifest: Manifest) -> None:
        """Spans of an epoch that was committed now: its job, and the levels inside."""
        for name, start_us, end_us, attributes in epoch_spans(manifest):
            if name == "epoch":
                root = self._tracer.start_span(name, start_time=start_us * 1000, attributes=attributes)
                inside, root_end_us = self._inside(root), end_us
                continue
            span = self._tracer.start_span(name, inside, start_time=start_us * 1000, attributes=attributes)
            span.end(end_us * 1000)
        root.end(root_end_us * 1000)

    def stop(self) -> None:
        """Send what was not sent."""
        if self._owned:
            self._provider.shutdown()


def epoch_spans(manifest: Manifest) -> list[tuple[str, int, int, dict[str, Any]]]:
    """The spans of an epoch: name, start and end in microseconds since 1970, attributes.

    An epoch begins at its time.  Phases that were measured after the epoch before are left out.

    >>> metrics = {"ms": 2, "levels_us": [[900, 900], [600, 600]], "phases_ms": {"admit": 1.0}}
    >>> spans = epoch_spans(Manifest("p", 7, 1, "n", 5, metrics=metrics))
    >>> [(name, start, end) for name, start, end, _ in spans]
    [('epoch', -995, 2005), ('admit', -995, 5), ('run', 5, 2005), ('level 0', 5, 905), ('level 1', 905, 1505)]
    """
    metrics, start_us = manifest.metrics, manifest.now_us
    ran_us = int(float(metrics.get("ms", 0)) * 1000)
    admit_us = int(float(metrics.get("phases_ms", {}).get("admit", 0)) * 1000)
    facts: dict[str, Any] = {
        "millpond.pond": manifest.pond,
        "millpond.epoch": manifest.epoch,
        "millpond.kind": manifest.kind,
        "millpond.rows": int(metrics.get("rows", 0)),
        "millpond.bytes_written": int(metrics.get("bytes_written", 0)),
    }
    found = [("epoch", start_us - admit_us, start_us + ran_us, facts)]
    if admit_us:
        found.append(("admit", start_us - admit_us, start_us, {}))
    if ran_us:
        found.append(("run", start_us, start_us + ran_us, {}))
    at_us = start_us
    tasks = metrics.get("tasks", ())
    for level, (slowest_us, _) in enumerate(metrics.get("levels_us", ())):
        count = {"millpond.tasks": tasks[level]} if level < len(tasks) else {}
        found.append((f"level {level}", at_us, at_us + slowest_us, count))
        at_us += slowest_us
    return found


def configured_traces(env: Mapping[str, str] = os.environ) -> Traces | None:
    """Traces if an exporter is configured; None otherwise."""
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true" or env.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if not any(env.get(name) for name in ENDPOINTS):
        return _of_this_process()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise InvalidError(
            f"an exporter of traces is configured, but the package {error.name} is not installed",
            hint="pip install 'millpond[telemetry]'",
        ) from error
    name = env.get("OTEL_SERVICE_NAME", "millpond")
    provider = TracerProvider(
        resource=Resource.create({"service.name": name, "service.version": __version__})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider, owned=True)


def _of_this_process() -> Traces | None:
    """The tracer provider that the program around us has set, if it uses OpenTelemetry."""
    import sys

    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    return (
        None if type(provider).__name__ in ("ProxyTracerProvider", "NoOpTracerProvider") else Traces(provider)
    )
