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

_OPERATORS = {
    "accumulate": "accumulate:Accumulate",
    "accumulate.call": "accumulate:Call",
    "agg.count": "accumulators:Count",
    "agg.decimal_avg": "accumulators:DecimalAvg",
    "agg.decimal_sum": "accumulators:DecimalSum",
    "agg.extremum": "accumulators:Extremum",
    "agg.float_avg": "accumulators:FloatAvg",
    "agg.float_sum": "accumulators:FloatSum",
    "agg.int_avg": "accumulators:IntAvg",
    "agg.int_sum": "accumulators:IntSum",
    "agg.variance": "accumulators:Variance",
    "agg.wide_sum": "accumulators:WideSum",
    "aggregate": "aggregate:Aggregate",
    "aggregate.agg": "aggregate:Agg",
    "aggregate.close": "aggregate:Close",
    "aggregate.feed": "aggregate:Feed",
    "bag": "bag:Bag",
    "binding": "operator:Binding",
    "bound": "bounds:Bound",
    "branch": "branch:Branch",
    "branch.arm": "branch:Arm",
    "compare": "comparisons:Compare",
    "compare.case": "comparisons:Case",
    "compare.junction": "comparisons:Junction",
    "compare.remainder": "comparisons:Remainder",
    "distinct": "distinct:Distinct",
    "distinct_values": "distinct_values:DistinctValues",
    "during": "during:During",
    "expression": "expressions:Expression",
    "extreme": "extreme:Extreme",
    "filter": "filter:Filter",
    "filter_rows": "filter_rows:FilterRows",
    "flat_map": "flat_map:FlatMap",
    "hold": "hold:Hold",
    "iterate": "iterate:Iterate",
    "iterate.inner": "iterate_epoch:Inner",
    "iterate.last": "iterate:Last",
    "iterate.step": "iterate:InnerStep",
    "join": "join:Join",
    "join.matcher": "join_match:Matcher",
    "join.side": "join_epoch:Side",
    "join.sides": "join_epoch:Sides",
    "keyed": "keyed:Keyed",
    "late_rows": "late:LateRows",
    "lookup_join": "lookup_join:LookupJoin",
    "lookup_join.looked": "lookup_join:Looked",
    "map": "map:Map",
    "map_batches": "map_batches:MapBatches",
    "materialize": "materialize:Materialize",
    "on_time": "on_time:OnTime",
    "packed_rows": "packed_rows:PackedRows",
    "per_key": "per_key:PerKey",
    "placement": "operator:Placement",
    "process": "process.keyed_process:KeyedProcess",
    "process.adds": "process.spec:Adds",
    "process.batch": "process.batch_process:BatchProcess",
    "process.code": "process.function:Code",
    "process.facts": "process.declared:Facts",
    "process.pick": "process.pick:Pick",
    "process.rebuilt": "process.nested:Rebuilt",
    "process.state": "process.spec:StateSpec",
    "process.ttl": "process.spec:Ttl",
    "python_function": "python_function:PythonFunction",
    "python_function.steps": "python_function:Steps",
    "ranked": "ranked:Ranked",
    "ranked.counted": "ranked:Counted",
    "reduce": "reduce:Reduce",
    "reduce.fold": "reduce:Fold",
    "scan": "scan:Scan",
    "session": "session:Session",
    "session_aggregate": "session_aggregate:SessionAggregate",
    "shape": "operator:Shape",
    "shard": "shard:Shard",
    "stamp": "stamp:Stamp",
    "state_scan": "state_scan:StateScan",
    "top_n": "top_n:TopN",
    "union": "union:Union",
    "unnest": "unnest:Unnest",
    "upsert": "upsert:Upsert",
    "wake": "operator:Wake",
    "watermark": "watermark:Watermark",
    "window.hop": "window:Hop",
    "window.spread": "window:Spread",
    "window.tumble": "window:Tumble",
}

_OTHERS = {
    "node": "millpond.plan.nodes:Node",
    "object": "millpond.plan.objects:SqlObject",
    "object.column": "millpond.plan.objects:SqlColumn",
    "order": "millpond.ordering:Order",
    "plan": "millpond.plan.nodes:Plan",
    "sink": "millpond.plan.nodes:SinkNode",
    "sink.callback": "millpond.sinks.callback:CallbackSink",
    "sink.parquet": "millpond.sinks.parquet:ParquetSink",
    "source.constant": "millpond.sources.constant:ConstantSource",
    "source.dataframe": "millpond.sources.dataframe:DataFrameSource",
    "source.files": "millpond.sources.files:FileSource",
    "source.inbox_table": "millpond.sources.inbox_table:InboxTable",
    "source.kafka": "millpond.sources.kafka:KafkaSource",
    "source.memory": "millpond.sources.memory:MemorySource",
    "source.one_row": "millpond.sources.constant:OneRow",
    "source.nexmark": "millpond.sources.nexmark:NexmarkSource",
    "source.nexmark_config": "millpond.sources.nexmark_events:NexmarkConfig",
    "table": "millpond.state.table_spec:TableSpec",
    "view": "millpond.plan.nodes:View",
}

# Tag to "module:class", where the class is now.
ADDRESSES: Mapping[str, str] = {
    **{tag: f"millpond.operators.{address}" for tag, address in _OPERATORS.items()},
    **_OTHERS,
}
# Where things of Millpond that users build on are now, if they were elsewhere when code was pickled: by
# (module, name).  Tags are of no use there, for pickles name what they need by module.
MOVED: Mapping[tuple[str, str], tuple[str, str]] = {}

_TAGS = {address: tag for tag, address in ADDRESSES.items()}


class UnknownTagError(Exception):
    """A catalog names a class that this version does not have."""


@cache
def class_of(tag: str) -> type:
    address = ADDRESSES.get(tag)
    if address is None:
        raise UnknownTagError(tag)
    module, _, name = address.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


@lru_cache(maxsize=1024)
def tag_of(cls: type) -> str | None:
    """The tag of a class of Millpond; None for a class of somebody else's."""
    tag = _TAGS.get(f"{cls.__module__}:{cls.__qualname__}")
    if tag is None and cls.__module__.partition(".")[0] == __name__.partition(".")[0]:
        raise InternalError(
            f"{cls.__qualname__} has no tag, and cannot be stored", detail=f"add it to {__name__}"
        )
    return tag
