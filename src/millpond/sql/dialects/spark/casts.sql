-- A text that is a number with a fraction, beside another value: an integer beside integers (which fails), else a DOUBLE.
create macro __spark.beside
    (t varchar, x varchar) as t,
    (t varchar, x bigint) as __spark.cast_bigint(t),
    (t, x) as __spark.cast_double(t);

-- CAST and TRY_CAST in ANSI mode: text is checked, fractions are cut off, what does not fit is an error.

create macro __spark.cast_string
    (x bigint) as x::varchar,
    (x varchar) as x,
    (x blob) as decode(x),
    (x boolean) as x::varchar,
    (x date) as x::varchar,
    (x timestamp) as x::varchar,
    (x timestamptz) as x::timestamp::varchar,
    (x) as case when typeof(x) in ('DOUBLE', 'FLOAT') then "spark.java_number.1"(x::varchar)
        when typeof(x) like '%]' or typeof(x) like 'MAP(%' or typeof(x) like 'STRUCT(%' then "spark.nested_text.1"(to_json(x)::varchar, typeof(x))
        when typeof(x) = 'INTERVAL' then error('CAST of INTERVAL to STRING is not supported: use extract()')
        when typeof(x) like 'DECIMAL%' then regexp_replace(x::varchar, '^(-?)\.', '\10.')
        else x::varchar end;

create macro __spark.cast_tinyint
    (x interval) as case when x is not null then error('CAST of INTERVAL to TINYINT is not supported: use extract()') end::tinyint,
    (x bigint) as x::tinyint,
    (x varchar) as case when x is null then null
        when regexp_full_match(x, '\s*[+-]?[0-9]+\s*') then trim(x, E' \t\n\r\f')::tinyint
        else error('cannot cast "' || x || '" to TINYINT') end,
    (x boolean) as x::tinyint,
    (x timestamptz) as __spark.floor_div(epoch_us(x), 1000000)::tinyint,
    (x) as trunc(x)::tinyint;

create macro __spark.try_cast_tinyint
    (x bigint) as try_cast(x as tinyint),
    (x varchar) as case when regexp_full_match(x, '\s*[+-]?[0-9]+\s*') then try_cast(trim(x, E' \t\n\r\f') as tinyint) end,
    (x boolean) as x::tinyint,
    (x timestamptz) as try_cast(__spark.floor_div(epoch_us(x), 1000000) as tinyint),
    (x) as try_cast(trunc(x) as tinyint);

create macro __spark.cast_smallint
    (x interval) as case when x is not null then error('CAST of INTERVAL to SMALLINT is not supported: use extract()') end::smallint,
    (x bigint) as x::smallint,
    (x varchar) as case when x is null then null
        when regexp_full_match(x, '\s*[+-]?[0-9]+\s*') then trim(x, E' \t\n\r\f')::smallint
        else error('cannot cast "' || x || '" to SMALLINT') end,
    (x boolean) as x::smallint,
    (x timestamptz) as __spark.floor_div(epoch_us(x), 1000000)::smallint,
    (x) as trunc(x)::smallint;

create macro __spark.try_cast_smallint
    (x bigint) as try_cast(x as smallint),
    (x varchar) as case when regexp_full_match(x, '\s*[+-]?[0-9]+\s*') then try_cast(trim(x, E' \t\n\r\f') as smallint) end,
    (x boolean) as x::smallint,
    (x timestamptz) as try_cast(__spark.floor_div(epoch_us(x), 1000000) as smallint),
    (x) as try_cast(trunc(x) as smallint);

create macro __spark.cast_int
    (x interval) as case when x is not null then error('CAST of INTERVAL to INT is not supported: use extract()') end::integer,
    (x bigint) as x::integer,
    (x varchar) as case when x is null then null
        when regexp_full_match(x, '\s*[+-]?[0-9]+\s*') then trim(x, E' \t\n\r\f')::integer
        else error('cannot cast "' || x || '" to INT') end,
    (x boolean) as x::integer,
    (x timestamptz) as __spark.floor_div(epoch_us(x), 1000000)::integer,
    (x) as trunc(x)::integer;

create macro __spark.try_cast_int
    (x bigint) as try_cast(x as integer),
    (x varchar) as case when regexp_full_match(x, '\s*[+-]?[0-9]+\s*') then try_cast(trim(x, E' \t\n\r\f') as integer) end,
    (x boolean) as x::integer,
    (x timestamptz) as try_cast(__spark.floor_div(epoch_us(x), 1000000) as integer),
    (x) as try_cast(trunc(x) as integer);

create macro __spark.cast_bigint
    (x interval) as case when x is not null then error('CAST of INTERVAL to BIGINT is not supported: use extract()') end::bigint,
    (x bigint) as x::bigint,
    (x varchar) as case when x is null then null
        when regexp_full_match(x, '\s*[+-]?[0-9]+\s*') then trim(x, E' \t\n\r\f')::bigint
        else error('cannot cast "' || x || '" to BIGINT') end,
    (x boolean) as x::bigint,
    (x timestamptz) as __spark.floor_div(epoch_us(x), 1000000)::bigint,
    (x) as trunc(x)::bigint;

create macro __spark.try_cast_bigint
    (x bigint) as try_cast(x as bigint),
    (x varchar) as case when regexp_full_match(x, '\s*[+-]?[0-9]+\s*') then try_cast(trim(x, E' \t\n\r\f') as bigint) end,
    (x boolean) as x::bigint,
    (x timestamptz) as try_cast(__spark.floor_div(epoch_us(x), 1000000) as bigint),
    (x) as try_cast(trunc(x) as bigint);

create macro __spark.cast_float
    (x interval) as case when x is not null then error('CAST of INTERVAL to FLOAT is not supported: use extract()') end::float,
    (x bigint) as x::float,
    (x varchar) as case when x is null then null
        when regexp_full_match(x, '\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf(inity)?)|(?i:nan))\s*') then trim(x, E' \t\n\r\f')::float
        else error('cannot cast "' || x || '" to FLOAT') end,
    (x boolean) as x::integer::float,
    (x timestamptz) as (epoch_us(x) / 1000000)::float,
    (x) as x::float;

create macro __spark.try_cast_float
    (x bigint) as try_cast(x as float),
    (x varchar) as case when regexp_full_match(x, '\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf(inity)?)|(?i:nan))\s*') then try_cast(trim(x, E' \t\n\r\f') as float) end,
    (x) as __spark.cast_float(x);

create macro __spark.cast_double
    (x interval) as case when x is not null then error('CAST of INTERVAL to DOUBLE is not supported: use extract()') end::double,
    (x bigint) as x::double,
    (x varchar) as case when x is null then null
        when regexp_full_match(x, '\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf(inity)?)|(?i:nan))\s*') then trim(x, E' \t\n\r\f')::double
        else error('cannot cast "' || x || '" to DOUBLE') end,
    (x boolean) as x::integer::double,
    (x timestamptz) as (epoch_us(x) / 1000000)::double,
    (x) as x::double;

create macro __spark.try_cast_double
    (x bigint) as try_cast(x as double),
    (x varchar) as case when regexp_full_match(x, '\s*([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf(inity)?)|(?i:nan))\s*') then try_cast(trim(x, E' \t\n\r\f') as double) end,
    (x) as __spark.cast_double(x);

-- What a CAST to DECIMAL(p, s) casts: DOUBLE goes by way of its digits.
create macro __spark.decimal_source
    (x interval) as case when x is not null then error('CAST of INTERVAL to DECIMAL is not supported: use extract()') end::integer,
    (x bigint) as x,
    (x varchar) as case when x is null then null when regexp_full_match(x, '\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*') then trim(x, E' \t\n\r\f')
        else error('cannot cast "' || x || '" to DECIMAL') end,
    (x boolean) as x::integer,
    (x timestamptz) as (epoch_us(x)::decimal(20, 0) * 0.000001::decimal(6, 6)),
    (x) as struct_extract(row(
            case when typeof(x) not in ('DOUBLE', 'FLOAT') then x end,
            case when typeof(x) in ('DOUBLE', 'FLOAT') then x::varchar end,
            cast_to_type(null, x)),
        1 + (typeof(x) in ('DOUBLE', 'FLOAT'))::integer);
create macro __spark.try_decimal_source
    (x varchar) as case when regexp_full_match(x, '\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*') then trim(x, E' \t\n\r\f') end,
    (x) as __spark.decimal_source(x);

create macro __spark.cast_boolean
    (x interval) as case when x is not null then error('CAST of INTERVAL to BOOLEAN is not supported: use extract()') end::boolean,
    (x bigint) as x <> 0,
    (x boolean) as x,
    (x varchar) as case when x is null then null
        when lower(trim(x, E' \t\n\r\f')) in ('t', 'true', 'y', 'yes', '1') then true
        when lower(trim(x, E' \t\n\r\f')) in ('f', 'false', 'n', 'no', '0') then false
        else error('cannot cast "' || x || '" to BOOLEAN') end,
    (x) as x <> 0;
create macro __spark.try_cast_boolean
    (x varchar) as case
        when lower(trim(x, E' \t\n\r\f')) in ('t', 'true', 'y', 'yes', '1') then true
        when lower(trim(x, E' \t\n\r\f')) in ('f', 'false', 'n', 'no', '0') then false end,
    (x) as __spark.cast_boolean(x);
create macro __spark.cast_binary
    (x bigint) as case when x is not null then error('CAST of a number to BINARY is not supported') end::blob,
    (x varchar) as encode(x),
    (x blob) as x;
create macro __spark.cast_date
    (x bigint) as case when x is not null then error('a number cannot be cast to DATE') end::date,
    (x varchar) as "spark.date_of_text.1"(x, true),
    (x date) as x,
    (x timestamp) as x::date,
    (x timestamptz) as x::timestamp::date;
create macro __spark.try_cast_date
    (x varchar) as "spark.date_of_text.1"(x, false),
    (x) as __spark.cast_date(x);
create macro __spark.cast_timestamp
    (x varchar) as make_timestamptz(epoch_us("spark.timestamp_of_text.1"(x, true, true))),
    (x date) as make_timestamptz(epoch_us(x::timestamp)),
    (x timestamp) as make_timestamptz(epoch_us(x)),
    (x timestamptz) as x,
    (x bigint) as make_timestamptz(x * 1000000),
    (x) as make_timestamptz(trunc(x * 1000000)::bigint);
create macro __spark.try_cast_timestamp
    (x varchar) as make_timestamptz(epoch_us("spark.timestamp_of_text.1"(x, false, true))),
    (x) as __spark.cast_timestamp(x);
create macro __spark.cast_timestamp_ntz
    (x bigint) as case when x is not null then error('a number cannot be cast to TIMESTAMP_NTZ') end::timestamp,
    (x varchar) as "spark.timestamp_of_text.1"(x, true, false),
    (x date) as x::timestamp,
    (x timestamp) as x,
    (x timestamptz) as x::timestamp;
create macro __spark.try_cast_timestamp_ntz
    (x varchar) as "spark.timestamp_of_text.1"(x, false, false),
    (x) as __spark.cast_timestamp_ntz(x);
