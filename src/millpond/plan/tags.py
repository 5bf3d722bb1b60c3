"""The classes that a catalog may hold, each under a short name that stays.

A file names a class by its tag, never by module and class: those may move.  Only the
classes listed here are ever made from a catalog's tags.

Rules: a tag is never renamed and never used for something else; a class that moves or
is renamed changes its address here, and keeps its tag.  `tests/unit/plan/test_tags.py`
keeps a second copy of the tags, and finds classes that are missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache, lru_cache

from millpond.errors import InternalError

_STEPS = {
    "accumulate": "operators.accumulate:Accumulate",
    "accumulate.call": "operators.accumulate:Call",
    "agg.cell_sketch": "kernels.synopses.sketch_accumulators:CellAccumulator",
    "agg.count": "kernels.accumulators:Count",
    "agg.decimal_avg": "kernels.accumulators:DecimalAvg",
    "agg.decimal_numeric_avg": "kernels.accumulators:DecimalNumericAvg",
    "agg.decimal_sum": "kernels.accumulators:DecimalSum",
    "agg.extremum": "kernels.accumulators:Extremum",
    "agg.float_avg": "kernels.accumulators:FloatAvg",
    "agg.float_sum": "kernels.accumulators:FloatSum",
    "agg.frequent_values": "kernels.synopses.sketch_accumulators:FrequentAccumulator",
    "agg.int_avg": "kernels.accumulators:IntAvg",
    "agg.int_numeric_avg": "kernels.accumulators:IntNumericAvg",
    "agg.int_sum": "kernels.accumulators:IntSum",
    "agg.linear_cell_sketch": "kernels.synopses.sketch_accumulators:LinearCellAccumulator",
    "agg.quantile_summary": "kernels.synopses.sketch_accumulators:QuantileAccumulator",
    "agg.row_sample": "kernels.synopses.sketch_accumulators:SampleAccumulator",
    "agg.variance": "kernels.accumulators:Variance",
    "agg.wide_sum": "kernels.accumulators:WideSum",
    "aggregate": "operators.aggregate:Aggregate",
    "aggregate.agg": "kernels.aggregate_feeds:Agg",
    "aggregate.close": "kernels.aggregate_feeds:Close",
    "aggregate.feed": "kernels.aggregate_feeds:AggregateFeed",
    "assign_slices": "operators.assign_slices:AssignSlices",
    "assign_windows": "operators.assign_windows:AssignWindows",
    "bag": "operators.bag:Bag",
    "binding": "operators.operator:Binding",
    "bound": "kernels.bounds:Bound",
    "branch": "operators.branch:Branch",
    "branch.arm": "operators.branch:Arm",
    "count_windows": "operators.count_windows:CountWindows",
    "compare": "kernels.comparisons:Compare",
    "compare.case": "kernels.comparisons:Case",
    "compare.junction": "kernels.comparisons:Junction",
    "compare.remainder": "kernels.comparisons:Remainder",
    "decode_changes": "operators.decode_changes:DecodeChanges",
    "distinct": "operators.distinct:Distinct",
    "distinct_values": "operators.distinct_values:DistinctValues",
    "during": "operators.valid_interval:ValidInterval",
    "emit_discarded": "operators.emit_discarded:EmitDiscarded",
    "emit_panes": "operators.emit_panes:EmitPanes",
    "expression": "kernels.expressions:Expression",
    "extreme": "operators.extreme:Extreme",
    "filter": "operators.filter:Filter",
    "filter_rows": "operators.filter_rows:FilterRows",
    "flat_map": "operators.flat_map:FlatMap",
    "function_with_key": "kernels.function_with_key:FunctionWithKey",
    "hold": "operators.emit_on_close:EmitOnClose",
    "in_order": "operators.in_order:InOrder",
    "insertions": "operators.insertions:Insertions",
    "iterate": "operators.iterate:Iterate",
    "iterate.inner": "operators.iterate:Inner",
    "iterate.last": "operators.iterate:Last",
    "iterate.step": "operators.iterate:InnerStep",
    "join": "operators.join:Join",
    "join.matcher": "kernels.join_match:Matcher",
    "join.side": "kernels.join_epoch:Side",
    "join.sides": "kernels.join_epoch:Sides",
    "keyed": "kernels.keyed_rows:Keyed",
    "late_rows": "operators.late_rows:LateRows",
    "lookup_join": "operators.lookup_join:LookupJoin",
    "lookup_join.looked": "operators.lookup_join:Looked",
    "lookup_memory": "operators.lookup_memory:LookupMemory",
    "merge_windows": "operators.merge_windows:MergeWindows",
    "map": "operators.map:Map",
    "map_batches": "operators.map_batches:MapBatches",
    "materialize": "operators.materialize:Materialize",
    "on_time": "operators.exclude_late:ExcludeLate",
    "packed_rows": "kernels.packed_rows:PackedRows",
    "pad_columns": "operators.pad_columns:PadColumns",
    "pane_view": "operators.pane_view:PaneView",
    "panes.pick": "operators.panes:PickPanes",
    "per_key": "operators.per_key:PerKey",
    "placement": "operators.operator:Placement",
    "process": "process.keyed_process:KeyedProcess",
    "process.adds": "process.spec:Adds",
    "process.batch": "process.batch_process:BatchProcess",
    "process.code": "process.function:Code",
    "process.facts": "process.declaration:ProcessFacts",
    "process.pick": "process.pick:Pick",
    "process.rebuilt": "process.nested:Rebuilt",
    "process.state": "process.spec:StateSpec",
    "process.ttl": "process.spec:Ttl",
    "python_function": "kernels.python_function:PythonFunction",
    "python_function.steps": "kernels.python_function:Steps",
    "ranked": "kernels.ranking:Ranked",
    "ranked.counted": "kernels.ranking:Counted",
    "reduce": "operators.reduce:Reduce",
    "reduce.fold": "operators.reduce:Fold",
    "replicated_table": "operators.replicated_table:ReplicatedTable",
    "scan": "operators.scan:Scan",
    "session": "operators.session:SessionWindow",
    "session_aggregate": "operators.session_aggregate:SessionAggregate",
    "shape": "operators.operator:Shape",
    "shard": "operators.shard:Shard",
    "sliding_aggregate": "operators.sliding_aggregate:SlidingAggregate",
    "stamp": "operators.stamp:Stamp",
    "state_scan": "operators.state_scan:StateScan",
    "top_n": "operators.top_n:TopN",
    "trigger.after_all": "kernels.triggers:AfterAll",
    "trigger.after_any": "kernels.triggers:AfterAny",
    "trigger.after_count": "kernels.triggers:AfterCount",
    "trigger.after_delay": "kernels.triggers:AfterDelay",
    "trigger.after_each": "kernels.triggers:AfterEach",
    "trigger.after_watermark": "kernels.triggers:AfterWatermark",
    "trigger.always": "kernels.triggers:Always",
    "trigger.at_share": "kernels.triggers:AtShare",
    "trigger.custom": "kernels.custom_trigger:CustomTrigger",
    "trigger.never": "kernels.triggers:Never",
    "trigger.repeatedly": "kernels.triggers:Repeatedly",
    "triggered": "operators.triggered:Triggered",
    "triggered_sessions": "operators.triggered_sessions:TriggeredSessions",
    "union": "operators.union:Union",
    "unnest": "operators.unnest:Unnest",
    "upsert": "operators.upsert:Upsert",
    "wake": "operators.operator:Wake",
    "watermark": "operators.watermark:Watermark",
    "watermark.bounded": "kernels.watermark_strategies:Bounded",
    "watermark.custom": "kernels.watermark_strategies:Custom",
    "watermark.announced": "kernels.watermark_strategies:NewestOf",
    "watermark.inherited": "kernels.watermark_strategies:Inherited",
    "watermark.percentile": "kernels.watermark_strategies:Percentile",
    "watermark.slack": "kernels.watermark_strategies:Slack",
    "window.hop": "operators.window:Hop",
    "window.spread": "operators.window:Spread",
    "window.tumble": "operators.window:Tumble",
    "windows.calendar": "kernels.calendar_windows:Calendar",
    "windows.custom": "kernels.custom_windows:CustomWindows",
    "windows.everything": "kernels.window_assigners:Everything",
    "windows.gap": "kernels.window_assigners:Gap",
    "windows.gap_column": "kernels.window_assigners:GapColumn",
    "windows.cumulating": "kernels.window_assigners:Cumulating",
    "windows.sliding": "kernels.window_assigners:Sliding",
    "windows.tumbling": "kernels.window_assigners:Tumbling",
    "within_calendar": "operators.within_calendar:WithinCalendar",
    "within_epoch": "operators.within_epoch:WithinEpoch",
}

_OTHERS = {
    "node": "millpond.plan.nodes:Node",
    "object": "millpond.plan.objects:SqlObject",
    "object.column": "millpond.plan.objects:SqlColumn",
    "object.constraint": "millpond.plan.objects:SqlConstraint",
    "object.identity": "millpond.plan.objects:SqlIdentity",
    "order": "millpond.ordering:Order",
    "plan": "millpond.plan.nodes:Plan",
    "sink": "millpond.plan.nodes:SinkNode",
    "sink.callback": "millpond.sinks.callback:CallbackSink",
    "sink.delta": "millpond.sinks.delta:DeltaSink",
    "sink.files": "millpond.sinks.files:FilesSink",
    "sink.iceberg": "millpond.sinks.iceberg:IcebergSink",
    "sink.foreach_batch": "millpond.sinks.foreach_batch:ForeachBatchSink",
    "sink.http": "millpond.sinks.http:HttpSink",
    "sink.jdbc": "millpond.sinks.jdbc:JdbcSink",
    "sink.kafka": "millpond.sinks.kafka:KafkaSink",
    "sink.parquet": "millpond.sinks.parquet:ParquetSink",
    "sink.postgres": "millpond.sinks.postgres:PostgresSink",
    "sink.settings": "millpond.plan.sink_settings:SinkSettings",
    "source.constant": "millpond.sources.constant:ConstantSource",
    "source.csv_options": "millpond.sources.text_format:CsvOptions",
    "source.dataframe": "millpond.sources.dataframe:DataFrameSource",
    "source.delta": "millpond.sources.delta:DeltaSource",
    "source.files": "millpond.sources.files:FileSource",
    "source.staged_batches": "millpond.sources.streaming_dataframe:StagedBatches",
    "source.iceberg": "millpond.sources.iceberg:IcebergSource",
    "source.inbox_table": "millpond.sources.inbox_table:InboxTable",
    "source.kafka": "millpond.sources.kafka:KafkaSource",
    "source.kafka_changes": "millpond.sources.kafka_changes:KafkaChanges",
    "source.kafka_topics": "millpond.sources.kafka_topics:KafkaTopicsSource",
    "source.memory": "millpond.sources.memory:MemorySource",
    "source.one_row": "millpond.sources.constant:OneRow",
    "source.pond": "millpond.sources.pond_view:PondSource",
    "source.postgres": "millpond.sources.postgres_cdc:PostgresSource",
    "source.postgres_table": "millpond.sources.postgres_schema:PostgresTable",
    "source.nexmark": "millpond.sources.nexmark:NexmarkSource",
    "source.nexmark_config": "millpond.sources.nexmark_events:NexmarkConfig",
    "table": "millpond.state.tables.table_spec:TableSpec",
    "table.copy_of": "millpond.state.runs.missing_column:CopyOf",
    "view": "millpond.plan.nodes:View",
}

# Tag to "module:class", where the class is now.
ADDRESSES: Mapping[str, str] = {
    **{tag: f"millpond.{address}" for tag, address in _STEPS.items()},
    **_OTHERS,
}
_TAGS = {address: tag for tag, address in ADDRESSES.items()}


class UnknownTagError(Exception):
    """A catalog names a class that this version does not have."""


@cache
def class_of(tag: str) -> type:
    address = ADDRESSES.get(tag)
    if address is None:
        raise UnknownTagError(tag)
    module, _, name = address.partition(":")
    cls: type = getattr(importlib.import_module(module), name)
    return cls


@lru_cache(maxsize=1024)
def tag_of(cls: type) -> str | None:
    """The tag of a class of Millpond; None for a class of somebody else's."""
    tag = _TAGS.get(f"{cls.__module__}:{cls.__qualname__}")
    if tag is None and cls.__module__.partition(".")[0] == __name__.partition(".")[0]:
        raise InternalError(
            f"{cls.__qualname__} has no tag, and cannot be stored", detail=f"add it to {__name__}"
        )
    return tag
