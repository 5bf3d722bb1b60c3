-- Mathematics: arguments are cast to DOUBLE where Spark casts them; outside of its domain log() is NULL.

create macro __spark.is_exact(a) as /* inline */ (typeof(a) like 'DECIMAL%' or typeof(a) in ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT'));
create macro __spark.signum
    (x interval) as case when x > interval 0 seconds then 1.0::double when x < interval 0 seconds then -1.0::double when x is not null then 0.0::double end,
    (x) as case when __spark.cast_double(x) > 0 then 1.0::double when __spark.cast_double(x) < 0 then -1.0::double
    when isnan(__spark.cast_double(x)) then 'NaN'::double when x is not null then 0.0::double end;
create macro __spark.sqrt(x) as case when __spark.cast_double(x) < 0 then 'NaN'::double else sqrt(__spark.cast_double(x)) end;
create macro __spark.ln(x) as case when __spark.cast_double(x) > 0 then ln(__spark.cast_double(x)) end;
create macro __spark.log
    (x) as __spark.ln(x),
    (b, x) as case when __spark.cast_double(x) > 0 and __spark.cast_double(b) > 0 then ln(__spark.cast_double(x)) / ln(__spark.cast_double(b)) end;
create macro __spark.log2(x) as case when __spark.cast_double(x) > 0 then log2(__spark.cast_double(x)) end;
create macro __spark.log10(x) as case when __spark.cast_double(x) > 0 then log10(__spark.cast_double(x)) end;
create macro __spark.log1p(x) as __spark.log1p_of(__spark.cast_double(x));
create macro __spark.log1p_of(x) as case when x <= -1 then null when 1 + x = 1 or x = 'inf'::double then x else ln(1 + x) * (x / ((1 + x) - 1)) end;
create macro __spark.expm1(x) as __spark.expm1_of(__spark.cast_double(x));
create macro __spark.expm1_of(x) as case when exp(x) = 1 then x when exp(x) - 1 = -1 then -1 when exp(x) = 'inf'::double then exp(x)
    else (exp(x) - 1) * (x / ln(exp(x))) end;
create macro __spark.e() as exp(1.0::double);
-- In Java 1 to the power of NaN or of infinity is NaN, and so is -1 to the power of infinity.
create macro __spark.pow(a, b) as __spark.power_of(__spark.cast_double(a), __spark.cast_double(b));
create macro __spark.power(a, b) as __spark.power_of(__spark.cast_double(a), __spark.cast_double(b));
create macro __spark.power_of(a, b) as case when a is not null and isnan(b) then b when abs(a) = 1 and isinf(b) then 'nan'::double else pow(a, b) end;
create macro __spark.hypot(a, b) as sqrt(__spark.cast_double(a) * __spark.cast_double(a) + __spark.cast_double(b) * __spark.cast_double(b));
create macro __spark.cot(x) as 1 / tan(__spark.cast_double(x));
create macro __spark.csc(x) as 1 / sin(__spark.cast_double(x));
create macro __spark.sec(x) as 1 / cos(__spark.cast_double(x));
create macro __spark.atanh(x) as case when abs(__spark.cast_double(x)) > 1 then 'NaN'::double
    when abs(__spark.cast_double(x)) = 1 then __spark.cast_double(x) * 'inf'::double else atanh(__spark.cast_double(x)) end;
create macro __spark.rint(x) as round_even(__spark.cast_double(x), 0);
create macro __spark.factorial(n) as case when n between 0 and 20 then factorial(n::integer)::bigint end;
create macro __spark.width_bucket(v, a, b, n) as __spark.bucket_of(v::double, a::double, b::double, __spark.cast_bigint(n));
create macro __spark.bucket_of(v, a, b, n) as case when v is null or a is null or b is null or n <= 0 or n = 9223372036854775807 or a = b then null
    when a < b then case when v < a then 0 when v >= b then n + 1 else floor(n::double * (v - a) / (b - a))::bigint + 1 end
    else case when v > a then 0 when v <= b then n + 1 else floor(n::double * (a - v) / (a - b))::bigint + 1 end end;

create macro __spark.ceil
    (x bigint) as x,
    (x, n) as /* inline n */ __spark.rounded_towards(x, n, 'ceil'),
    (x varchar) as __spark.to_bigint_range(ceil(__spark.cast_double(x))),
    (x) as __spark.ceil_by(x, __spark.by_type(x, 1 + __spark.is_decimal(x)::integer));
create macro __spark.ceil_by
    (x, way date) as /* inline */ __spark.to_bigint_range(ceil(x::double)),
    (x, way time) as /* inline */ cast_to_type(ceil(x), __spark.decimal_type(x, least(38, __spark.digits(x) - __spark.scale(x) + 1), 0));
create macro __spark.ceiling
    (x) as __spark.ceil(x),
    (x, n) as /* inline n */ __spark.rounded_towards(x, n, 'ceil');
create macro __spark.floor
    (x bigint) as x,
    (x, n) as /* inline n */ __spark.rounded_towards(x, n, 'floor'),
    (x varchar) as __spark.to_bigint_range(floor(__spark.cast_double(x))),
    (x) as __spark.floor_by(x, __spark.by_type(x, 1 + __spark.is_decimal(x)::integer));
create macro __spark.floor_by
    (x, way date) as /* inline */ __spark.to_bigint_range(floor(x::double)),
    (x, way time) as /* inline */ cast_to_type(floor(x), __spark.decimal_type(x, least(38, __spark.digits(x) - __spark.scale(x) + 1), 0));
-- ceil(x, n) and floor(x, n): integers and doubles as decimals.
create macro __spark.rounded_towards
    (x bigint, n, side) as /* inline */ __spark.rounded_towards_of(x::decimal(20, 0), n, side),
    (x double, n, side) as /* inline */ __spark.rounded_towards_of(x::decimal(30, 15), n, side),
    (x, n, side) as /* inline n side */ __spark.rounded_towards_of(x, n, side);
create macro __spark.rounded_towards_of(x, n, side) as /* inline n side */ cast_to_type("spark.round_towards.1"(x::varchar, n::integer, side), __spark.rounded_type(x, n));
-- A DOUBLE as a BIGINT: NaN is 0, and what is too large is an error.
create macro __spark.to_bigint_range(x) as case when isnan(x) then 0::bigint when x >= 9223372036854775808::double or x < -9223372036854775808::double
    then error('overflow of BIGINT')::bigint else x::bigint end;
create macro __spark.round
    (x) as __spark.round(x, 0),
    (x, n) as /* inline n */ __spark.round_by(x, n, __spark.number_way(x));
create macro __spark.number_way(x) as /* inline */ __spark.by_type(x, case when __spark.is_decimal(x) then 2 when __spark.is_exact(x) then 1 else 3 end);
create macro __spark.round_by
    (x, n, way date) as /* inline */ round(x, n::integer),
    (x, n, way time) as /* inline */ cast_to_type("spark.round.1"(x::varchar, n::integer), __spark.rounded_type(x, n)),
    (x, n, way timestamp) as /* inline */ cast_to_type("spark.round.1"(x::varchar, n::integer)::double, x);
create macro __spark.bround
    (x) as __spark.bround(x, 0),
    (x, n) as /* inline n */ __spark.bround_by(x, n, __spark.by_type(x, 1 + __spark.is_decimal(x)::integer));
create macro __spark.bround_by
    (x, n, way date) as /* inline */ cast_to_type("spark.bround.1"(x::varchar, n::integer), x),
    (x, n, way time) as /* inline */ cast_to_type("spark.bround.1"(x::varchar, n::integer), __spark.rounded_type(x, n));
create macro __spark.rounded_type(x, n) as /* inline */ __spark.decimal_type(x,
    least(38, greatest(__spark.digits(x) - __spark.scale(x) + 1, 1 - n) + greatest(0, least(n, __spark.scale(x)))),
    greatest(0, least(n, __spark.scale(x))));

create macro __spark."^"(a, b) as xor(a, b);
-- 32 or 64 bits as a signed number.
create macro __spark.signed_32(x) as (x - case when x >= 2147483648 then 4294967296 else 0 end)::integer;
create macro __spark.signed_64(x) as (x - case when x >= 9223372036854775808::hugeint then 18446744073709551616::hugeint else 0::hugeint end)::bigint;
create macro __spark.unsigned_64(x) as x::hugeint + case when x < 0 then 18446744073709551616::hugeint else 0::hugeint end;
create macro __spark.shiftleft
    (a integer, n integer) as __spark.signed_32(((a::bigint & 4294967295) << (n & 31)) & 4294967295),
    (a bigint, n integer) as __spark.signed_64(__spark.unsigned_64(a) * (1::hugeint << (n & 63)) % 18446744073709551616::hugeint);
create macro __spark.shiftrightunsigned
    (a integer, n integer) as __spark.signed_32((a::bigint & 4294967295) >> (n & 31)),
    (a bigint, n integer) as __spark.signed_64(__spark.unsigned_64(a) // (1::hugeint << (n & 63)));
create macro __spark.shiftright
    (a integer, n integer) as a >> (n & 31),
    (a bigint, n integer) as a >> (n & 63);
create macro __spark.bit_count(x) as bit_count(x::bigint)::integer;
create macro __spark.bit_get(x, n) as ((x >> n) & 1)::tinyint;
create macro __spark.getbit(x, n) as ((x >> n) & 1)::tinyint;

-- Arguments and results of sum().
create macro __spark.summand
    (x varchar) as __spark.cast_double(x),
    (x) as x;
-- `t` is a NULL of the type of the argument, or of a DECIMAL that has no more digits: DuckDB's sum of decimals has always 38 digits.
create macro __spark.sum_result(x, t) as __spark.sum_result_by(x, t,
    __spark.by_type(x, case when typeof(x) = 'HUGEINT' then 2 when __spark.is_decimal(x) then 3 else 1 end));
create macro __spark.sum_result_by
    (x, t, way date) as /* inline */ x,
    (x, t, way time) as /* inline */ x::bigint,
    (x, t, way timestamp) as /* inline */ cast_to_type(x, __spark.decimal_type(t, least(38, __spark.digits(t) + 10), __spark.scale(t)));
create macro __spark.try_sum_result(x, t) as __spark.try_sum_by(x, t, __spark.by_type(x, 1 + (typeof(x) = 'HUGEINT')::integer));
create macro __spark.try_sum_by
    (x, t, way date) as __spark.sum_result(x, t),
    (x, t, way time) as /* inline */ try_cast(x as bigint);
create macro __spark.average_of(x, n, t) as __spark.average_by(x, n, t, __spark.by_type(x, 1 + __spark.is_decimal(x)::integer));
create macro __spark.average_by
    (x, n, t, way date) as /* inline x t */ case when n > 0 then x::double / n end,
    (x, n, t, way time) as /* inline x t */ case when n > 0 then cast_to_type(
        "spark.decimal_quotient.1"(x::varchar, n::varchar, least(38, __spark.scale(t) + 4), true),
        __spark.decimal_type(t, least(38, __spark.digits(t) + 4), least(38, __spark.scale(t) + 4))) end;

create macro __spark.bitmap_bit_position(x bigint) as case when x > 0 then (x - 1) % 32768 else (-x) % 32768 end;
create macro __spark.bitmap_bucket_number(x bigint) as case when x > 0 then 1 + (x - 1) // 32768 else x // 32768 end;
create macro __spark.bitmap_count(x blob) as "spark.bitmap_count.1"(x);
-- DuckDB's skewness is that of a sample, Spark's that of all values.
create macro __spark.skewness_of(x, n, v) as case when n < 2 or v = 0 then null when n = 2 then 0::double
    else x * (n - 2) / sqrt(n::double * (n - 1)) end;
