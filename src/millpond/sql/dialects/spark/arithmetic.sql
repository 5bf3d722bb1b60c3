-- Arithmetic: overflow and division by zero are errors; decimals keep the digits that Spark's rules give.
--
-- A result whose type depends on the types of the arguments is a field of a row: `typeof` is known when DuckDB
-- binds, so the number of the field is constant, and the optimizer removes the others.
-- `cast_to_type(null, a)` lets DuckDB create the macro: it cannot bind that before the types are known.

create macro __spark.digits(a) as /* inline */ case
    when typeof(a) like 'DECIMAL%' then regexp_extract(typeof(a), '(\d+),', 1)::integer
    when typeof(a) = 'TINYINT' then 3 when typeof(a) = 'SMALLINT' then 5
    when typeof(a) = 'INTEGER' then 10 when typeof(a) = 'BIGINT' then 20 else 38 end;
create macro __spark.scale(a) as /* inline */ case
    when typeof(a) like 'DECIMAL%' then regexp_extract(typeof(a), ',(\d+)', 1)::integer else 0 end;
create macro __spark.is_decimal(a) as /* inline */ typeof(a) like 'DECIMAL%';
create macro __spark.is_float(a) as /* inline */ typeof(a) in ('DOUBLE', 'FLOAT');

-- A NULL of DECIMAL(whole + scale, scale), of which place is scale + 1.
create macro __spark.decimal_type(whole, place) as /* inline */ coalesce(
    struct_extract(row(null::decimal(1, 0), null::decimal(2, 0), null::decimal(3, 0), null::decimal(4, 0), null::decimal(5, 0), null::decimal(6, 0), null::decimal(7, 0), null::decimal(8, 0), null::decimal(9, 0), null::decimal(10, 0), null::decimal(11, 0), null::decimal(12, 0), null::decimal(13, 0), null::decimal(14, 0), null::decimal(15, 0), null::decimal(16, 0), null::decimal(17, 0), null::decimal(18, 0), null::decimal(19, 0), null::decimal(20, 0), null::decimal(21, 0), null::decimal(22, 0), null::decimal(23, 0), null::decimal(24, 0), null::decimal(25, 0), null::decimal(26, 0), null::decimal(27, 0), null::decimal(28, 0), null::decimal(29, 0), null::decimal(30, 0), null::decimal(31, 0), null::decimal(32, 0), null::decimal(33, 0), null::decimal(34, 0), null::decimal(35, 0), null::decimal(36, 0), null::decimal(37, 0), null::decimal(38, 0)), whole),
    struct_extract(row(null::decimal(1, 0), null::decimal(1, 1), null::decimal(2, 2), null::decimal(3, 3), null::decimal(4, 4), null::decimal(5, 5), null::decimal(6, 6), null::decimal(7, 7), null::decimal(8, 8), null::decimal(9, 9), null::decimal(10, 10), null::decimal(11, 11), null::decimal(12, 12), null::decimal(13, 13), null::decimal(14, 14), null::decimal(15, 15), null::decimal(16, 16), null::decimal(17, 17), null::decimal(18, 18), null::decimal(19, 19), null::decimal(20, 20), null::decimal(21, 21), null::decimal(22, 22), null::decimal(23, 23), null::decimal(24, 24), null::decimal(25, 25), null::decimal(26, 26), null::decimal(27, 27), null::decimal(28, 28), null::decimal(29, 29), null::decimal(30, 30), null::decimal(31, 31), null::decimal(32, 32), null::decimal(33, 33), null::decimal(34, 34), null::decimal(35, 35), null::decimal(36, 36), null::decimal(37, 37), null::decimal(38, 38)), place));
-- Decimals with decimals or integers; a value of another type is replaced by one that can be bound.
create macro __spark.exact(a, b) as /* inline */ ((__spark.is_decimal(a) or __spark.is_decimal(b)) and not __spark.is_float(a) and not __spark.is_float(b));
create macro __spark.if_exact(x, a, b) as /* inline x */ struct_extract(row(null::integer, x), 1 + __spark.exact(a, b)::integer);
create macro __spark.unless_exact(x, a, b) as /* inline x */ struct_extract(row(x, null::integer), 1 + __spark.exact(a, b)::integer);
-- DuckDB computes with decimals of up to 18 digits within 18 digits; an operand of more makes room.
create macro __spark.widened(a) as cast_to_type(a, coalesce(cast_to_type(null, a), null::decimal(19, 0)));
create macro __spark.digits_of(a, da) as /* inline */ case when da > 0 then da else __spark.digits(a) end;
create macro __spark.scale_of_38(p, s) as /* inline */ greatest(38 - (p - s), least(s, 6));
create macro __spark.sum_scale(a, b) as /* inline */ greatest(__spark.scale(a), __spark.scale(b));
create macro __spark.sum_digits(a, b, da, db) as /* inline */
    greatest(__spark.digits_of(a, da) - __spark.scale(a), __spark.digits_of(b, db) - __spark.scale(b)) + greatest(__spark.scale(a), __spark.scale(b)) + 1;
create macro __spark.difference_scale(a, b) as /* inline */ __spark.sum_scale(a, b);
create macro __spark.difference_digits(a, b, da, db) as /* inline */ __spark.sum_digits(a, b, da, db);
create macro __spark.product_scale(a, b) as /* inline */ __spark.scale(a) + __spark.scale(b);
create macro __spark.product_digits(a, b, da, db) as /* inline */ __spark.digits_of(a, da) + __spark.digits_of(b, db) + 1;

create macro __spark.sum(a, b, da, db) as /* inline da db */ struct_extract(row(
        case when not __spark.exact(a, b) then system.main."+"(__spark.unless_exact(a, a, b), __spark.unless_exact(b, a, b)) end,
        case when __spark.exact(a, b) and __spark.sum_digits(a, b, da, db) <= 38 then cast_to_type(
            system.main."+"(__spark.widened(__spark.if_exact(a, a, b)), __spark.if_exact(b, a, b)),
            __spark.decimal_type(greatest(1, least(38, __spark.sum_digits(a, b, da, db) - __spark.sum_scale(a, b))), least(39, __spark.sum_scale(a, b) + 1))) end,
        case when __spark.exact(a, b) and __spark.sum_digits(a, b, da, db) > 38 then cast_to_type(
            "spark.decimal_arithmetic.1"('+', a::varchar, b::varchar, __spark.scale_of_38(__spark.sum_digits(a, b, da, db), __spark.sum_scale(a, b))),
            __spark.decimal_type(greatest(1, least(38, 38 - __spark.scale_of_38(__spark.sum_digits(a, b, da, db), __spark.sum_scale(a, b)))),
                greatest(1, least(39, __spark.scale_of_38(__spark.sum_digits(a, b, da, db), __spark.sum_scale(a, b)) + 1)))) end),
    case when not __spark.exact(a, b) then 1 when __spark.sum_digits(a, b, da, db) <= 38 then 2 else 3 end);
create macro __spark.difference(a, b, da, db) as /* inline da db */ struct_extract(row(
        case when not __spark.exact(a, b) then system.main."-"(__spark.unless_exact(a, a, b), __spark.unless_exact(b, a, b)) end,
        case when __spark.exact(a, b) and __spark.difference_digits(a, b, da, db) <= 38 then cast_to_type(
            system.main."-"(__spark.widened(__spark.if_exact(a, a, b)), __spark.if_exact(b, a, b)),
            __spark.decimal_type(greatest(1, least(38, __spark.difference_digits(a, b, da, db) - __spark.difference_scale(a, b))), least(39, __spark.difference_scale(a, b) + 1))) end,
        case when __spark.exact(a, b) and __spark.difference_digits(a, b, da, db) > 38 then cast_to_type(
            "spark.decimal_arithmetic.1"('-', a::varchar, b::varchar, __spark.scale_of_38(__spark.difference_digits(a, b, da, db), __spark.difference_scale(a, b))),
            __spark.decimal_type(greatest(1, least(38, 38 - __spark.scale_of_38(__spark.difference_digits(a, b, da, db), __spark.difference_scale(a, b)))),
                greatest(1, least(39, __spark.scale_of_38(__spark.difference_digits(a, b, da, db), __spark.difference_scale(a, b)) + 1)))) end),
    case when not __spark.exact(a, b) then 1 when __spark.difference_digits(a, b, da, db) <= 38 then 2 else 3 end);
create macro __spark.product(a, b, da, db) as /* inline da db */ struct_extract(row(
        case when not __spark.exact(a, b) then system.main."*"(__spark.unless_exact(a, a, b), __spark.unless_exact(b, a, b)) end,
        case when __spark.exact(a, b) and __spark.product_digits(a, b, da, db) <= 38 then cast_to_type(
            system.main."*"(__spark.widened(__spark.if_exact(a, a, b)), __spark.if_exact(b, a, b)),
            __spark.decimal_type(greatest(1, least(38, __spark.product_digits(a, b, da, db) - __spark.product_scale(a, b))), least(39, __spark.product_scale(a, b) + 1))) end,
        case when __spark.exact(a, b) and __spark.product_digits(a, b, da, db) > 38 then cast_to_type(
            "spark.decimal_arithmetic.1"('*', a::varchar, b::varchar, __spark.scale_of_38(__spark.product_digits(a, b, da, db), __spark.product_scale(a, b))),
            __spark.decimal_type(greatest(1, least(38, 38 - __spark.scale_of_38(__spark.product_digits(a, b, da, db), __spark.product_scale(a, b)))),
                greatest(1, least(39, __spark.scale_of_38(__spark.product_digits(a, b, da, db), __spark.product_scale(a, b)) + 1)))) end),
    case when not __spark.exact(a, b) then 1 when __spark.product_digits(a, b, da, db) <= 38 then 2 else 3 end);

create macro __spark."+"
    (a tinyint, b tinyint, da integer, db integer) as system.main."+"(a, b),
    (a smallint, b smallint, da integer, db integer) as system.main."+"(a, b),
    (a integer, b integer, da integer, db integer) as system.main."+"(a, b),
    (a bigint, b bigint, da integer, db integer) as system.main."+"(a, b),
    (a date, b interval, da integer, db integer) as case when coalesce((a + b)::date::timestamp = a + b, true) then (a + b)::date
        else error('DATE + INTERVAL of hours is not supported: cast the date to TIMESTAMP first') end,
    (a date, b integer, da integer, db integer) as (a + b)::date,
    (a, b, da, db) as /* inline da db */ __spark.sum(a, b, da, db);
create macro __spark."-"
    (a tinyint, b tinyint, da integer, db integer) as system.main."-"(a, b),
    (a smallint, b smallint, da integer, db integer) as system.main."-"(a, b),
    (a integer, b integer, da integer, db integer) as system.main."-"(a, b),
    (a bigint, b bigint, da integer, db integer) as system.main."-"(a, b),
    (a date, b integer, da integer, db integer) as (a - b)::date,
    (a date, b interval, da integer, db integer) as case when coalesce((a - b)::date::timestamp = a - b, true) then (a - b)::date
        else error('DATE - INTERVAL of hours is not supported: cast the date to TIMESTAMP first') end,
    (a date, b date, da integer, db integer) as to_days((a - b)::integer),
    (a, b, da, db) as /* inline da db */ __spark.difference(a, b, da, db);
create macro __spark."*"
    (a tinyint, b tinyint, da integer, db integer) as system.main."*"(a, b),
    (a smallint, b smallint, da integer, db integer) as system.main."*"(a, b),
    (a integer, b integer, da integer, db integer) as system.main."*"(a, b),
    (a bigint, b bigint, da integer, db integer) as system.main."*"(a, b),
    (a, b, da, db) as /* inline da db */ __spark.product(a, b, da, db);

-- `da` and `db` are the digits of an integer literal, which has no more than it shows; 0 for all else.
create macro __spark.divided(a, b, da, db, lenient) as /* inline da db lenient */ struct_extract(row(
        case when not ((__spark.is_decimal(a) or __spark.is_decimal(b)) and not __spark.is_float(a) and not __spark.is_float(b)) then case when a is null then null
            when b::double = 0 then case when lenient then null else error('division by zero') end
            else a::double / b::double end end,
        case when ((__spark.is_decimal(a) or __spark.is_decimal(b)) and not __spark.is_float(a) and not __spark.is_float(b))
            then cast_to_type(case when 38 in (__spark.digits(a), __spark.digits(b)) and a is not null
                then error('a quotient of DECIMAL(38, s), such as a sum, is not supported: cast it to fewer digits, or to DOUBLE')
                else "spark.decimal_quotient.1"(a::varchar, b::varchar, __spark.quotient_scale(a, b, da, db), lenient) end,
                __spark.decimal_type(__spark.quotient_whole(a, b, da, db), __spark.quotient_scale(a, b, da, db) + 1)) end),
    1 + ((__spark.is_decimal(a) or __spark.is_decimal(b)) and not __spark.is_float(a) and not __spark.is_float(b))::integer);
-- The digits of a quotient: Spark keeps at least six after the point when there is no room for all within 38.
create macro __spark.quotient_scale(a, b, da, db) as /* inline */
    case when __spark.digits_of(a, da) - __spark.scale(a) + __spark.scale(b) + greatest(6, __spark.scale(a) + __spark.digits_of(b, db) + 1) <= 38
        then greatest(6, __spark.scale(a) + __spark.digits_of(b, db) + 1)
        else greatest(6, 38 - (__spark.digits_of(a, da) - __spark.scale(a) + __spark.scale(b))) end;
create macro __spark.quotient_whole(a, b, da, db) as /* inline */
    greatest(1, least(38 - __spark.quotient_scale(a, b, da, db), __spark.digits_of(a, da) - __spark.scale(a) + __spark.scale(b)));

create macro __spark.div
    (a bigint, b bigint) as case when a is null then null when b = 0 then error('division by zero') else a // b end,
    (a, b) as case when a is null then null when b = 0 then error('division by zero')
        else "spark.decimal_quotient.1"(a::varchar, b::varchar, -1, true)::bigint end;
create macro __spark.remainder(a, b) as case when a is null then null when b = 0 then error('division by zero') else system.main."%"(a, b) end;
create macro __spark."%"(a, b, da, db) as /* inline da db */ struct_extract(row(
        case when not __spark.exact(a, b) then __spark.remainder(__spark.unless_exact(a, a, b), __spark.unless_exact(b, a, b)) end,
        case when __spark.exact(a, b) then cast_to_type(__spark.remainder(__spark.widened(__spark.if_exact(a, a, b)), __spark.if_exact(b, a, b)),
            __spark.decimal_type(greatest(1, least(38, __spark.digits_of(a, da) - __spark.scale(a), __spark.digits_of(b, db) - __spark.scale(b))),
                1 + __spark.sum_scale(a, b))) end),
    1 + __spark.exact(a, b)::integer);
create macro __spark.mod(a, b) as __spark."%"(a, b, 0, 0);
create macro __spark.try_mod(a, b) as case when b <> 0 then system.main."%"(a, b) end;
create macro __spark.pmod(a, b) as case when a is null then null when b = 0 then error('division by zero')
    when system.main."%"(a, b) < 0 then system.main."%"(system.main."%"(a, b) + b, b) else system.main."%"(a, b) end;
create macro __spark.floor_div(a bigint, b bigint) as a // b - (a % b < 0)::bigint;
create macro __spark.negative(a) as /* inline */ system.main."-"(a);
create macro __spark.positive(a) as /* inline */ a;
create macro __spark.try_add
    (a tinyint, b tinyint) as try_cast(a::integer + b as tinyint),
    (a smallint, b smallint) as try_cast(a::integer + b as smallint),
    (a integer, b integer) as try_cast(a::bigint + b as integer),
    (a bigint, b bigint) as try_cast(a::hugeint + b as bigint),
    (a, b) as __spark."+"(a, b, 0, 0);
create macro __spark.try_subtract
    (a tinyint, b tinyint) as try_cast(a::integer - b as tinyint),
    (a smallint, b smallint) as try_cast(a::integer - b as smallint),
    (a integer, b integer) as try_cast(a::bigint - b as integer),
    (a bigint, b bigint) as try_cast(a::hugeint - b as bigint),
    (a, b) as __spark."-"(a, b, 0, 0);
create macro __spark.try_multiply
    (a tinyint, b tinyint) as try_cast(a::integer * b as tinyint),
    (a smallint, b smallint) as try_cast(a::integer * b as smallint),
    (a integer, b integer) as try_cast(a::bigint * b as integer),
    (a bigint, b bigint) as try_cast(a::hugeint * b as bigint),
    (a, b) as __spark."*"(a, b, 0, 0);
