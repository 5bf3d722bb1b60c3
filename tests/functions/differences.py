"""What is known to differ from PostgreSQL: short, and on the page."""

from __future__ import annotations

_DOUBLE = "computed with double precision: 15 digits"
NOTES = {
    "to_ascii": "for other encodings than UTF-8 only",
    "array_fill": "one dimension; nest two calls for more",
    "unnest": "an array of arrays gives its rows; PostgreSQL gives all elements",
    "age": "infinity is refused",
    "lcm": "a numeric has at most 38 digits",
    "octet_length(character)": "`char(n)` is not padded",
    "max(character)": "`char(n)` is not padded",
    "min(character)": "`char(n)` is not padded",
    "sum(interval)": "sum the seconds: `sum(extract(epoch from x)) * interval '1 second'`",
    "avg(interval)": "as sum(interval)",
    "string_agg(bytea, bytea)": "encode to text first",
    **{f: _DOUBLE for f in ("stddev", "stddev_pop", "stddev_samp", "var_pop", "var_samp", "variance", "avg")},
    "percentile_cont": "not of intervals",
    "json_agg": "a record of VALUES shows numbers with the scale of its column",
    "jsonb_agg": "a record of VALUES shows numbers with the scale of its column",
}
_CLOCK = "the time of the epoch in views, of the statement elsewhere"
_POPULATE = "there are no row types; use `->>` and casts"
UNMEASURED = {
    "now": ("supported", _CLOCK),
    "statement_timestamp": ("supported", _CLOCK),
    "transaction_timestamp": ("supported", _CLOCK),
    "clock_timestamp": ("missing", "use now(): a view must not read a clock"),
    "timeofday": ("missing", "use to_char(now(), …)"),
    "random": ("supported", "in reads; refused in views and deferred changes"),
    "gen_random_uuid": ("supported", "in reads and defaults; refused in views"),
    "age(timestamp with time zone)": ("supported", "from the current date"),
    "age(timestamp without time zone)": ("supported", "from the current date"),
    **{f: ("missing", _POPULATE) for f in ("json_populate_record", "json_populate_recordset", "jsonb_populate_record", "jsonb_populate_recordset")},
}  # fmt: skip
