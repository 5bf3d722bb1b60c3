-- Spark without ANSI mode: integers wrap around, and what cannot be computed or cast is NULL.

create macro __spark.wrapped_tinyint(x) as /* inline */ (((x + 128) % 256 + 256) % 256 - 128)::tinyint;
create macro __spark.wrapped_smallint(x) as /* inline */ (((x + 32768) % 65536 + 65536) % 65536 - 32768)::smallint;
create macro __spark.wrapped_int(x) as /* inline */ (((x + 2147483648) % 4294967296 + 4294967296) % 4294967296 - 2147483648)::integer;
create macro __spark.wrapped_bigint(x) as /* inline */ (((x::hugeint + 9223372036854775808::hugeint) % 18446744073709551616::hugeint
    + 18446744073709551616::hugeint) % 18446744073709551616::hugeint - 9223372036854775808::hugeint)::bigint;

-- An operand of arithmetic: a text is a DOUBLE, or NULL.
create macro __spark.lax_number
    (x varchar) as __spark.try_cast_double(x),
    (x) as /* inline */ x;
create macro __spark."lax_+"
    (a tinyint, b tinyint, da integer, db integer) as __spark.wrapped_tinyint(system.main."+"(a::integer, b::integer)),
    (a smallint, b smallint, da integer, db integer) as __spark.wrapped_smallint(system.main."+"(a::integer, b::integer)),
    (a integer, b integer, da integer, db integer) as __spark.wrapped_int(system.main."+"(a::bigint, b::bigint)),
    (a bigint, b bigint, da integer, db integer) as __spark.wrapped_bigint(system.main."+"(a::hugeint, b::hugeint)),
    (a, b, da, db) as /* inline da db */ __spark.lax_sum_by(a, b, da, db, __spark.by_type(a, 1 + __spark.exact(a, b)::integer));
create macro __spark.lax_sum_by
    (a, b, da, db, way date) as /* inline da db */ __spark."+"(a, b, da, db),
    (a, b, da, db, way time) as /* inline da db */ try(__spark."+"(a, b, da, db));
create macro __spark."lax_-"
    (a tinyint, b tinyint, da integer, db integer) as __spark.wrapped_tinyint(system.main."-"(a::integer, b::integer)),
    (a smallint, b smallint, da integer, db integer) as __spark.wrapped_smallint(system.main."-"(a::integer, b::integer)),
    (a integer, b integer, da integer, db integer) as __spark.wrapped_int(system.main."-"(a::bigint, b::bigint)),
    (a bigint, b bigint, da integer, db integer) as __spark.wrapped_bigint(system.main."-"(a::hugeint, b::hugeint)),
    (a, b, da, db) as /* inline da db */ __spark.lax_difference_by(a, b, da, db, __spark.by_type(a, 1 + __spark.exact(a, b)::integer));
create macro __spark.lax_difference_by
    (a, b, da, db, way date) as /* inline da db */ __spark."-"(a, b, da, db),
    (a, b, da, db, way time) as /* inline da db */ try(__spark."-"(a, b, da, db));
create macro __spark."lax_*"
    (a tinyint, b tinyint, da integer, db integer) as __spark.wrapped_tinyint(system.main."*"(a::integer, b::integer)),
    (a smallint, b smallint, da integer, db integer) as __spark.wrapped_smallint(system.main."*"(a::integer, b::integer)),
    (a integer, b integer, da integer, db integer) as __spark.wrapped_int(system.main."*"(a::bigint, b::bigint)),
    (a bigint, b bigint, da integer, db integer) as __spark.wrapped_bigint(system.main."*"(a::hugeint, b::hugeint)),
    (a, b, da, db) as /* inline da db */ __spark.lax_product_by(a, b, da, db, __spark.by_type(a, 1 + __spark.exact(a, b)::integer));
create macro __spark.lax_product_by
    (a, b, da, db, way date) as /* inline da db */ __spark."*"(a, b, da, db),
    (a, b, da, db, way time) as /* inline da db */ try(__spark."*"(a, b, da, db));
create macro __spark.lax_divided(a, b, da, db) as /* inline da db */
    __spark.lax_divided_by(a, b, da, db, __spark.by_type(a, 1 + __spark.exact(a, b)::integer));
create macro __spark.lax_divided_by
    (a, b, da, db, way date) as /* inline da db */ __spark.divided(a, b, da, db, true),
    (a, b, da, db, way time) as /* inline da db */ try(__spark.divided(a, b, da, db, true));
create macro __spark."lax_%"
    (a, b, da, db) as /* inline da db */ case when b <> 0 then __spark."%"(a, b, da, db) end;
create macro __spark.lax_div
    (a bigint, b bigint) as case when b <> 0 then __spark.wrapped_bigint(a::hugeint // b::hugeint) end,
    (a, b) as case when b <> 0 then try(__spark.div(a, b)) end;
create macro __spark.lax_pmod(a, b) as case when b <> 0 then __spark.pmod(a, b) end;
create macro __spark.lax_negative
    (a tinyint) as __spark.wrapped_tinyint(system.main."-"(a::integer)),
    (a smallint) as __spark.wrapped_smallint(system.main."-"(a::integer)),
    (a integer) as __spark.wrapped_int(system.main."-"(a::bigint)),
    (a bigint) as __spark.wrapped_bigint(system.main."-"(a::hugeint)),
    (a) as /* inline */ system.main."-"(a);
create macro __spark.lax_abs
    (a tinyint) as case when a < 0 then __spark.wrapped_tinyint(system.main."-"(a::integer)) else a end,
    (a smallint) as case when a < 0 then __spark.wrapped_smallint(system.main."-"(a::integer)) else a end,
    (a integer) as case when a < 0 then __spark.wrapped_int(system.main."-"(a::bigint)) else a end,
    (a bigint) as case when a < 0 then __spark.wrapped_bigint(system.main."-"(a::hugeint)) else a end,
    (a) as /* inline */ abs(a);

-- Casts to integers: a text counts up to its point, a number wraps around, a DOUBLE stops at the largest.
create macro __spark.whole_part(x) as case when regexp_full_match(x, '\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]*)\s*')
    then coalesce(nullif(regexp_extract(x, '^\s*([+-]?[0-9]+)', 1), ''), '0') end;
create macro __spark.saturated_int(x) as case when isnan(x) then 0::integer when x >= 2147483647 then 2147483647::integer
    when x <= -2147483648 then (-2147483648)::integer else trunc(x)::integer end;
create macro __spark.saturated_bigint(x) as case when isnan(x) then 0::bigint when x >= 9223372036854775807::double then 9223372036854775807::bigint
    when x <= -9223372036854775808::double then (-9223372036854775808)::bigint else trunc(x)::bigint end;
create macro __spark.lax_cast_tinyint
    (x bigint) as __spark.wrapped_tinyint(x),
    (x varchar) as try_cast(__spark.whole_part(x) as tinyint),
    (x boolean) as x::tinyint,
    (x timestamptz) as try_cast(__spark.floor_div(epoch_us(x), 1000000) as tinyint),
    (x) as __spark.lax_tinyint_by(x, __spark.by_type(x, 1 + __spark.is_float(x)::integer));
create macro __spark.lax_tinyint_by
    (x, way date) as /* inline */ __spark.wrapped_tinyint(trunc(x)::hugeint),
    (x, way time) as /* inline */ __spark.wrapped_tinyint(__spark.saturated_int(x::double)::bigint);
create macro __spark.lax_cast_smallint
    (x bigint) as __spark.wrapped_smallint(x),
    (x varchar) as try_cast(__spark.whole_part(x) as smallint),
    (x boolean) as x::smallint,
    (x timestamptz) as try_cast(__spark.floor_div(epoch_us(x), 1000000) as smallint),
    (x) as __spark.lax_smallint_by(x, __spark.by_type(x, 1 + __spark.is_float(x)::integer));
create macro __spark.lax_smallint_by
    (x, way date) as /* inline */ __spark.wrapped_smallint(trunc(x)::hugeint),
    (x, way time) as /* inline */ __spark.wrapped_smallint(__spark.saturated_int(x::double)::bigint);
create macro __spark.lax_cast_int
    (x bigint) as __spark.wrapped_int(x),
    (x varchar) as try_cast(__spark.whole_part(x) as integer),
    (x boolean) as x::integer,
    (x timestamptz) as try_cast(__spark.floor_div(epoch_us(x), 1000000) as integer),
    (x) as __spark.lax_int_by(x, __spark.by_type(x, 1 + __spark.is_float(x)::integer));
create macro __spark.lax_int_by
    (x, way date) as /* inline */ __spark.wrapped_int(trunc(x)::hugeint),
    (x, way time) as /* inline */ __spark.saturated_int(x::double);
create macro __spark.lax_cast_bigint
    (x bigint) as x,
    (x varchar) as try_cast(__spark.whole_part(x) as bigint),
    (x boolean) as x::bigint,
    (x timestamptz) as __spark.floor_div(epoch_us(x), 1000000),
    (x) as __spark.lax_bigint_by(x, __spark.by_type(x, 1 + __spark.is_float(x)::integer));
create macro __spark.lax_bigint_by
    (x, way date) as /* inline */ __spark.wrapped_bigint(trunc(x)::hugeint),
    (x, way time) as /* inline */ __spark.saturated_bigint(x::double);

-- One side of a comparison, as it is compared with the other: a text is cast to the type of the other.
create macro __spark.lax_side
    (x varchar, o varchar) as /* inline */ x,
    (x varchar, o tinyint) as __spark.lax_cast_tinyint(x),
    (x varchar, o smallint) as __spark.lax_cast_smallint(x),
    (x varchar, o integer) as __spark.lax_cast_int(x),
    (x varchar, o bigint) as __spark.lax_cast_bigint(x),
    (x varchar, o float) as __spark.try_cast_float(x),
    (x varchar, o double) as __spark.try_cast_double(x),
    (x varchar, o boolean) as __spark.try_cast_boolean(x),
    (x varchar, o date) as __spark.try_cast_date(x),
    (x varchar, o timestamp) as __spark.try_cast_timestamp_ntz(x),
    (x varchar, o timestamptz) as __spark.try_cast_timestamp(x),
    (x, o) as /* inline */ __spark.lax_side_by(x, o, __spark.by_type(x,
        case when typeof(x) = 'VARCHAR' and __spark.is_decimal(o) then 2 when typeof(o) = 'VARCHAR' and __spark.is_decimal(x) then 3 else 1 end));
create macro __spark.lax_side_by
    (x, o, way date) as /* inline */ x,
    (x, o, way time) as __spark.try_cast_double(x),
    (x, o, way timestamp) as /* inline */ x::double;

-- Arguments that are texts: NULL where they are no date or time.
create macro __spark.lax_date
    (x varchar) as "spark.date_of_text.1"(x, false),
    (x) as /* inline */ x;
create macro __spark.lax_time
    (x varchar) as __spark.try_cast_timestamp(x),
    (x) as /* inline */ x;

create macro __spark."lax_[]"(x, k) as case
    when not __spark.is_map(x) and __spark.number_or_null(k) < 0 then null
    else x[__spark.place_or_key(x, k, __spark.number_or_null(k) + 1)] end;
create macro __spark.lax_size(x) as coalesce(cardinality(x)::integer, -1);
create macro __spark.lax_elt(n, l) as case when n between 1 and len(l) then l[n] end;
create macro __spark.lax_conv(x, a, b) as "spark.conv_or_largest.1"(__spark.cast_string(x), a::integer, b::integer);
create macro __spark.lax_next_day(d, w) as case when lower(w) in ('mo', 'mon', 'monday', 'tu', 'tue', 'tuesday', 'we', 'wed', 'wednesday',
    'th', 'thu', 'thursday', 'fr', 'fri', 'friday', 'sa', 'sat', 'saturday', 'su', 'sun', 'sunday') then __spark.next_day(d, w) end;
create macro __spark.lax_make_date(y, m, d) as try(make_date(__spark.lax_cast_int(y)::bigint, __spark.lax_cast_int(m)::bigint, __spark.lax_cast_int(d)::bigint));
create macro __spark.lax_to_timestamp_ntz
    (x) as __spark.try_cast_timestamp_ntz(x),
    (x, f) as "spark.parse_time.1"(__spark.cast_string(x), f, false);
create macro __spark.lax_unix_timestamp
    (x varchar) as __spark.seconds_of("spark.parse_time.1"(x, 'yyyy-MM-dd HH:mm:ss', false)),
    (x) as __spark.seconds_of(__spark.as_ntz(x)),
    (x varchar, f varchar) as __spark.seconds_of("spark.parse_time.1"(x, f, false)),
    (x, f) as __spark.seconds_of(__spark.as_ntz(x));

create macro __spark.lax_summand
    (x varchar) as __spark.try_cast_double(x),
    (x) as x;
create macro __spark.lax_sum_result(x, t) as __spark.lax_sum_result_by(x, t, __spark.by_type(x,
    case when typeof(x) = 'HUGEINT' then 2 when __spark.is_decimal(x) then 3 else 1 end));
create macro __spark.lax_sum_result_by
    (x, t, way date) as /* inline */ x,
    (x, t, way time) as /* inline */ __spark.wrapped_bigint(x),
    (x, t, way timestamp) as /* inline */ try(__spark.sum_result(x, t));
