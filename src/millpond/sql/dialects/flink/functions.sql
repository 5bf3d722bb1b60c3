-- Functions of Flink whose meaning neither DuckDB nor Spark has.  What is not here is the same as in Spark.

create macro __flink.is_integer(a) as /* inline */ typeof(a) in ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT');
create macro __flink.integers(a, b) as /* inline */ __flink.is_integer(a) and __flink.is_integer(b);
create macro __flink.if_integer(x, a, b) as /* inline x */ struct_extract(row(null::integer, x), 1 + (__flink.integers(a, b))::integer);
create macro __flink.unless_integer(x, a, b) as /* inline x */ struct_extract(row(x, null::integer), 1 + (__flink.integers(a, b))::integer);
-- Integers are divided without a remainder, all else as in Spark.
create macro __flink."/"(a, b, da, db) as /* inline da db */ struct_extract(row(
        case when not (__flink.integers(a, b)) then __spark.divided(__flink.unless_integer(a, a, b), __flink.unless_integer(b, a, b), da, db, false) end,
        case when __flink.integers(a, b) then __spark.div(__flink.if_integer(a, a, b), __flink.if_integer(b, a, b)) end),
    1 + (__flink.integers(a, b))::integer);
-- avg(x) from DuckDB's sum and count: of integers it is one, cut off; of decimals it has at least six digits.
create macro __flink.average_of(s, n) as struct_extract(row(
        case when typeof(s) = 'HUGEINT' and n > 0 then (case when typeof(s) = 'HUGEINT' then s end::hugeint // n::hugeint)::bigint end,
        case when typeof(s) in ('DOUBLE', 'FLOAT') and n > 0 then case when typeof(s) in ('DOUBLE', 'FLOAT') then s end::double / n end,
        case when __spark.is_decimal(s) and n > 0 then cast_to_type(
            "spark.decimal_quotient.1"(s::varchar, n::varchar, greatest(6, __spark.scale(s)), true),
            __spark.decimal_type(s, 38, greatest(6, __spark.scale(s)))) end),
    case when typeof(s) = 'HUGEINT' then 1 when typeof(s) in ('DOUBLE', 'FLOAT') then 2 else 3 end);
create macro __flink.floor(x) as struct_extract(row(x, system.main.floor(x)), 1 + (not __flink.is_integer(x))::integer);
create macro __flink.ceil(x) as struct_extract(row(x, system.main.ceil(x)), 1 + (not __flink.is_integer(x))::integer);

create macro __flink.cast_string
    (x boolean) as upper(x::varchar),
    (x timestamp) as case when x is not null then error('CAST of a TIMESTAMP to STRING depends on its digits in Flink: use DATE_FORMAT') end::varchar,
    (x timestamptz) as case when x is not null then error('CAST of a TIMESTAMP_LTZ to STRING depends on its digits in Flink: use DATE_FORMAT') end::varchar,
    (x varchar) as x,
    (x) as __spark.cast_string(x);

create macro __flink.substring
    (s, p) as __flink.substring(s, p, 2147483647),
    (s, p, n) as case when n < 0 then null when p < 0 and length(s) + p < 0 then ''
        else system.main.substring(s, case when p = 0 then 1 else p end, n) end;
create macro __flink.split_index(s, d, n) as case when n < 0 or s = '' then null else string_split(s, d)[n::bigint + 1] end;
create macro __flink.regexp(s, p) as case when s is null or p is null then null when p = '' then false else "spark.rlike.1"(s, p) end;
create macro __flink.regexp_extract
    (s, p) as "spark.regexp_group.1"(s, p, 0),
    (s, p, n) as "spark.regexp_group.1"(s, p, n::integer);
create macro __flink.regexp_replace(s, p, r) as __spark.regexp_replace(s, p, r);
create macro __flink.json_value(s, p) as case when not json_valid(s) or json_type(s, p) in ('OBJECT', 'ARRAY') then null else json_extract_string(s, p) end;
create macro __flink.is_json(s) as json_valid(s);
create macro __flink.to_timestamp
    (x) as __spark.try_cast_timestamp_ntz(x),
    (x, f) as "spark.parse_time.1"(x, f, false);
create macro __flink.to_date
    (x) as __spark.try_cast_date(x),
    (x, f) as "spark.parse_time.1"(x, f, false)::date;
create macro __flink.to_timestamp_ltz
    (n) as __flink.to_timestamp_ltz(n, 3),
    (n, p) as case p when 0 then make_timestamptz(n::bigint * 1000000) when 3 then make_timestamptz(n::bigint * 1000)
        else error('TO_TIMESTAMP_LTZ has precision 0 or 3')::timestamptz end;
create macro __flink.floor_to(u, t) as cast_to_type(date_trunc(u, t), t);
create macro __flink.cardinality(x) as cardinality(x)::integer;
