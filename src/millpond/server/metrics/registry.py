"""Every metric that a server exposes, in one table.

Law: a metric exists if and only if it is listed here.  `docs/serving/metrics.md` is generated from this
table, and the collector refuses a name or a set of labels that the table does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]

EPOCH_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
QUERY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


@dataclass(frozen=True)
class Metric:
    """One metric; a counter's name ends with `_total`."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    group: str = ""


def _group(title: str, *metrics: Metric) -> tuple[Metric, ...]:
    return tuple(Metric(m.name, m.kind, m.help, m.labels, m.buckets, title) for m in metrics)


METRICS: tuple[Metric, ...] = (
    *_group(
        "Pond",
        Metric(
            "millpond_info",
            "gauge",
            "Always 1; the version of the server and the pond's id.",
            ("version", "pond"),
        ),
        Metric("millpond_epoch", "gauge", "The newest committed epoch."),
        Metric("millpond_epoch_floor", "gauge", "The oldest epoch that can be read."),
        Metric("millpond_epoch_age_seconds", "gauge", "Time since the newest epoch was committed."),
        Metric("millpond_parallelism", "gauge", "Tasks per level that an epoch may use."),
        Metric("millpond_savepoints", "gauge", "The number of savepoints."),
        Metric("millpond_backfill_running", "gauge", "1 while new views are backfilled in chunks."),
        Metric(
            "millpond_state",
            "gauge",
            "1 for the state of the pipeline in this process: new, running, stopped, failed, standby.",
            ("state",),
        ),
    ),
    *_group(
        "Epochs",
        Metric("millpond_epochs_total", "counter", "Committed epochs by kind.", ("kind",)),
        Metric(
            "millpond_epoch_seconds", "histogram", "How long the job of an epoch took.", (), EPOCH_BUCKETS_S
        ),
        Metric(
            "millpond_epoch_phase_seconds_total",
            "counter",
            "Time of epochs by phase: admit, run, commit, deliver. "
            "A commit and a delivery are recorded with the next epoch.",
            ("phase",),
        ),
        Metric(
            "millpond_level_seconds_total", "counter", "Time of the slowest task of each level.", ("level",)
        ),
        Metric("millpond_epoch_rows_total", "counter", "Rows that epochs admitted."),
        Metric("millpond_epoch_written_bytes_total", "counter", "Bytes of runs that epochs wrote."),
        Metric(
            "millpond_epoch_cache_requests_total",
            "counter",
            "Files of a remote pond that tasks of epochs read: hit or miss of their disk cache.",
            ("outcome",),
        ),
        Metric(
            "millpond_epoch_cache_parts_total",
            "counter",
            "Requests of the tasks of epochs for parts of large files.",
        ),
        Metric(
            "millpond_epoch_fetched_bytes_total",
            "counter",
            "Bytes that the tasks of epochs fetched from the store of a remote pond.",
        ),
        Metric("millpond_epoch_tasks", "gauge", "Tasks of the last epoch that ran.", ("level",)),
        Metric(
            "millpond_task_skew_ratio",
            "gauge",
            "Slowest task of a level relative to its average, in the last epoch that ran; 1 is even.",
            ("level",),
        ),
    ),
    *_group(
        "Steps, sources and sinks",
        Metric("millpond_source_rows_total", "counter", "Rows that were read from a source.", ("source",)),
        Metric("millpond_source_bytes_total", "counter", "Bytes that were read from a source.", ("source",)),
        Metric(
            "millpond_backlog_rows",
            "gauge",
            "Rows that a source had and the last epoch did not admit, as far as the source knows.",
            ("source",),
        ),
        Metric("millpond_inbox_entries", "gauge", "Inbox entries that no epoch has executed."),
        Metric("millpond_step_rows_total", "counter", "Rows that a step produced.", ("step",)),
        Metric("millpond_step_seconds_total", "counter", "Time that a step took, over all tasks.", ("step",)),
        Metric("millpond_sink_rows_total", "counter", "Changes that were delivered to a sink.", ("sink",)),
        Metric("millpond_sink_bytes_total", "counter", "Bytes that were delivered to a sink.", ("sink",)),
        Metric("millpond_sink_deliveries_total", "counter", "Deliveries to a sink.", ("sink",)),
        Metric("millpond_sink_seconds_total", "counter", "Time of deliveries to a sink.", ("sink",)),
        Metric("millpond_sink_epoch", "gauge", "The last epoch that a sink received.", ("sink",)),
        Metric("millpond_sink_behind_epochs", "gauge", "Epochs that a sink has not received.", ("sink",)),
        Metric(
            "millpond_sink_state",
            "gauge",
            "1 for the state of a sink: current, behind, failed, paused, detached.",
            ("sink", "state"),
        ),
    ),
    *_group(
        "Event time",
        Metric(
            "millpond_watermark_timestamp_seconds",
            "gauge",
            "The watermark, as seconds since 1970.",
            ("step", "source"),
        ),
        Metric(
            "millpond_event_lag_seconds",
            "gauge",
            "How far the watermark is behind the newest event time that was seen.",
            ("step", "source"),
        ),
        Metric(
            "millpond_processing_lag_seconds",
            "gauge",
            "How far the watermark is behind the time of the epoch.",
            ("step", "source"),
        ),
        Metric(
            "millpond_watermark_delay_seconds",
            "gauge",
            "How far the watermark is behind the clock.",
            ("step", "source"),
        ),
        Metric(
            "millpond_watermark_held_rows", "gauge", "Rows in state that wait for a watermark.", ("step",)
        ),
        Metric("millpond_late_rows_total", "counter", "Late rows.", ("step",)),
        Metric("millpond_error_rows_total", "counter", "Rows that a step could not process.", ("step",)),
        Metric(
            "millpond_dead_letter_rows_total", "counter", "Rows that the target of a sink refused.", ("sink",)
        ),
        Metric("millpond_shed_rows_total", "counter", "Rows that were shed.", ("step",)),
        Metric(
            "millpond_sink_lost_epochs_total",
            "counter",
            "Epochs that a sink never received, because they were collected before it.",
            ("sink",),
        ),
    ),
    *_group(
        "State",
        Metric(
            "millpond_table_rows",
            "gauge",
            "Stored rows of a state table, also those that newer runs replace.",
            ("table",),
        ),
        Metric("millpond_table_bytes", "gauge", "Bytes of the runs of a state table.", ("table",)),
        Metric("millpond_table_runs", "gauge", "Runs of a state table.", ("table",)),
        Metric(
            "millpond_compaction_debt_bytes", "gauge", "Bytes of the runs that wait to be merged.", ("table",)
        ),
        Metric("millpond_compaction_merges_total", "counter", "Merged runs that were committed.", ("table",)),
        Metric("millpond_compaction_written_bytes_total", "counter", "Bytes of merged runs.", ("table",)),
        Metric(
            "millpond_cache_requests_total",
            "counter",
            "Reads of run files of a remote pond by this process: hit or miss of its disk cache.",
            ("outcome",),
        ),
    ),
    *_group(
        "Lease",
        Metric("millpond_lease_held", "gauge", "1 while a process holds the pond.", ("holder",)),
        Metric("millpond_lease_age_seconds", "gauge", "Time since the lease was last renewed."),
        Metric("millpond_takeovers_total", "counter", "How often the pond was taken over since it was made."),
    ),
    *_group(
        "Server",
        Metric("millpond_connections", "gauge", "Open connections.", ("protocol",)),
        Metric("millpond_connections_total", "counter", "Accepted connections.", ("protocol",)),
        Metric(
            "millpond_queries_total",
            "counter",
            "Statements by kind (the verb) and outcome: ok, or the kind of the error.",
            ("protocol", "kind", "outcome"),
        ),
        Metric(
            "millpond_query_seconds",
            "histogram",
            "How long a statement took.",
            ("protocol", "kind"),
            QUERY_BUCKETS_S,
        ),
        Metric("millpond_scrape_seconds", "gauge", "How long it took to collect these metrics."),
        Metric(
            "millpond_scrape_error",
            "gauge",
            "1 if the pond could not be read, so that only the server's own metrics are shown.",
        ),
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}


def markdown() -> str:
    """The table of docs/serving/metrics.md."""
    lines: list[str] = []
    group = ""
    for metric in METRICS:
        if metric.group != group:
            group = metric.group
            lines += ["", f"### {group}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines[1:]) + "\n"
