"""Catalogs of format 1, which had no version and named classes by module and class.

The names below are those of the code that wrote format 1.
They are never imported: each is translated to the tag of its class, wherever that class is now.
All other classes in format 1 belong to users.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import pickle
import uuid
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any

from millpond.errors import DataError

Encode = Callable[[Any], Any]


class _Zone:
    """Stands for zoneinfo.ZoneInfo, whose pickles ask for one of its functions."""


def _attribute(of: Any, name: str) -> Any:
    if of is not _Zone or name != "_unpickle":
        raise pickle.UnpicklingError(f"not plain data: {name}")
    return lambda key, _from_cache: zoneinfo.ZoneInfo(key)


# Values that format 1 pickled though they are plain data, such as the default of a column.
_PLAIN: Mapping[tuple[str, str], Any] = {
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "date"): datetime.date,
    ("datetime", "time"): datetime.time,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    ("uuid", "UUID"): uuid.UUID,
    ("builtins", "getattr"): _attribute,
    ("zoneinfo", "ZoneInfo"): _Zone,
}


def upgraded(value: Any, encode: Encode) -> Any:
    """A value of format 1 as format 2 writes it; `encode` writes plain data."""
    if isinstance(value, list):
        return [upgraded(each, encode) for each in value]
    if not isinstance(value, dict):
        return value
    if "$class" in value:
        return _object(value["$class"], upgraded(value["fields"], encode))
    if "$pickle" in value:
        plain = _plain(base64.b64decode(value["$pickle"]))
        return {"$pickle": value["$pickle"]} if plain is None else encode(plain[0])
    return {key: upgraded(each, encode) for key, each in value.items()}


def _object(name: str, fields: Any) -> Any:
    tag = TAGS.get(name)
    if tag == "sink.callback" and isinstance(fields.get("pickled"), dict):
        fields = {**fields, "pickled": {"$pickle": fields["pickled"]["$bytes"]}}  # code, kept as bytes
    if tag is not None:
        return {"$": tag, "fields": fields}
    if name.partition(".")[0] == __name__.partition(".")[0]:
        raise DataError(
            f"the catalog names a class that Millpond never stored: {name}",
            hint="restore the file under catalog/ from a copy",
        )
    return {"$user": name, "fields": fields}


class _PlainUnpickler(pickle.Unpickler):
    """Makes numbers, texts, times and lists of them, and refuses everything else before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        cls = _PLAIN.get((module, name))
        if cls is None:
            raise pickle.UnpicklingError(f"not plain data: {module}.{name}")
        return cls

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("not plain data: a persistent id")


def _plain(raw: bytes) -> tuple[Any] | None:
    """The value of a pickle of plain data; None for code."""
    try:
        return (_PlainUnpickler(io.BytesIO(raw)).load(),)
    except Exception:  # whatever a pickle of something else makes of it
        return None


TAGS = {
    "millpond.operators.accumulate:Accumulate": "accumulate",
    "millpond.operators.accumulate:Call": "accumulate.call",
    "millpond.operators.accumulators:Count": "agg.count",
    "millpond.operators.accumulators:DecimalAvg": "agg.decimal_avg",
    "millpond.operators.accumulators:DecimalSum": "agg.decimal_sum",
    "millpond.operators.accumulators:Extremum": "agg.extremum",
    "millpond.operators.accumulators:FloatAvg": "agg.float_avg",
    "millpond.operators.accumulators:FloatSum": "agg.float_sum",
    "millpond.operators.accumulators:IntAvg": "agg.int_avg",
    "millpond.operators.accumulators:IntSum": "agg.int_sum",
    "millpond.operators.accumulators:Variance": "agg.variance",
    "millpond.operators.accumulators:WideSum": "agg.wide_sum",
    "millpond.operators.aggregate:Agg": "aggregate.agg",
    "millpond.operators.aggregate:Aggregate": "aggregate",
    "millpond.operators.aggregate:Close": "aggregate.close",
    "millpond.operators.aggregate:Feed": "aggregate.feed",
    "millpond.operators.bag:Bag": "bag",
    "millpond.operators.bounds:Bound": "bound",
    "millpond.operators.branch:Arm": "branch.arm",
    "millpond.operators.branch:Branch": "branch",
    "millpond.operators.comparisons:Case": "compare.case",
    "millpond.operators.comparisons:Compare": "compare",
    "millpond.operators.comparisons:Junction": "compare.junction",
    "millpond.operators.comparisons:Remainder": "compare.remainder",
    "millpond.operators.distinct:Distinct": "distinct",
    "millpond.operators.distinct_values:DistinctValues": "distinct_values",
    "millpond.operators.during:During": "during",
    "millpond.operators.expressions:Expression": "expression",
    "millpond.operators.extreme:Extreme": "extreme",
    "millpond.operators.filter:Filter": "filter",
    "millpond.operators.filter_rows:FilterRows": "filter_rows",
    "millpond.operators.flat_map:FlatMap": "flat_map",
    "millpond.operators.hold:Hold": "hold",
    "millpond.operators.iterate:InnerStep": "iterate.step",
    "millpond.operators.iterate:Iterate": "iterate",
    "millpond.operators.iterate:Last": "iterate.last",
    "millpond.operators.iterate_epoch:Inner": "iterate.inner",
    "millpond.operators.join:Join": "join",
    "millpond.operators.join_epoch:Side": "join.side",
    "millpond.operators.join_epoch:Sides": "join.sides",
    "millpond.operators.join_match:Matcher": "join.matcher",
    "millpond.operators.keyed:Keyed": "keyed",
    "millpond.operators.late:LateRows": "late_rows",
    "millpond.operators.lookup_join:Looked": "lookup_join.looked",
    "millpond.operators.lookup_join:LookupJoin": "lookup_join",
    "millpond.operators.map:Map": "map",
    "millpond.operators.map_batches:MapBatches": "map_batches",
    "millpond.operators.materialize:Materialize": "materialize",
    "millpond.operators.on_time:OnTime": "on_time",
    "millpond.operators.operator:Binding": "binding",
    "millpond.operators.operator:Placement": "placement",
    "millpond.operators.operator:Shape": "shape",
    "millpond.operators.operator:Wake": "wake",
    "millpond.operators.packed_rows:PackedRows": "packed_rows",
    "millpond.operators.per_key:PerKey": "per_key",
    "millpond.operators.process.batch_process:BatchProcess": "process.batch",
    "millpond.operators.process.declared:Facts": "process.facts",
    "millpond.operators.process.function:Code": "process.code",
    "millpond.operators.process.keyed_process:KeyedProcess": "process",
    "millpond.operators.process.nested:Rebuilt": "process.rebuilt",
    "millpond.operators.process.pick:Pick": "process.pick",
    "millpond.operators.process.spec:Adds": "process.adds",
    "millpond.operators.process.spec:StateSpec": "process.state",
    "millpond.operators.process.spec:Ttl": "process.ttl",
    "millpond.operators.python_function:PythonFunction": "python_function",
    "millpond.operators.python_function:Steps": "python_function.steps",
    "millpond.operators.ranked:Counted": "ranked.counted",
    "millpond.operators.ranked:Ranked": "ranked",
    "millpond.operators.reduce:Fold": "reduce.fold",
    "millpond.operators.reduce:Reduce": "reduce",
    "millpond.operators.scan:Scan": "scan",
    "millpond.operators.session:Session": "session",
    "millpond.operators.session_aggregate:SessionAggregate": "session_aggregate",
    "millpond.operators.shard:Shard": "shard",
    "millpond.operators.stamp:Stamp": "stamp",
    "millpond.operators.state_scan:StateScan": "state_scan",
    "millpond.operators.top_n:TopN": "top_n",
    "millpond.operators.union:Union": "union",
    "millpond.operators.unnest:Unnest": "unnest",
    "millpond.operators.upsert:Upsert": "upsert",
    "millpond.operators.watermark:Watermark": "watermark",
    "millpond.operators.window:Hop": "window.hop",
    "millpond.operators.window:Spread": "window.spread",
    "millpond.operators.window:Tumble": "window.tumble",
    "millpond.ordering:Order": "order",
    "millpond.plan.nodes:Node": "node",
    "millpond.plan.nodes:Plan": "plan",
    "millpond.plan.nodes:SinkNode": "sink",
    "millpond.plan.nodes:View": "view",
    "millpond.plan.objects:SqlColumn": "object.column",
    "millpond.plan.objects:SqlObject": "object",
    "millpond.sinks.callback:CallbackSink": "sink.callback",
    "millpond.sinks.parquet:ParquetSink": "sink.parquet",
    "millpond.sources.constant:ConstantSource": "source.constant",
    "millpond.sources.constant:OneRow": "source.one_row",
    "millpond.sources.dataframe:DataFrameSource": "source.dataframe",
    "millpond.sources.files:FileSource": "source.files",
    "millpond.sources.inbox_table:InboxTable": "source.inbox_table",
    "millpond.sources.kafka:KafkaSource": "source.kafka",
    "millpond.sources.memory:MemorySource": "source.memory",
    "millpond.sources.nexmark:NexmarkSource": "source.nexmark",
    "millpond.sources.nexmark_events:NexmarkConfig": "source.nexmark_config",
    "millpond.state.table_spec:TableSpec": "table",
}
