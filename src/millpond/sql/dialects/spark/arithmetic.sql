-- Arithmetic: overflow and division by zero are errors; decimals keep the digits that Spark's rules give.
--
-- A result whose type depends on the types of the arguments is computed by an overload of a macro `..._by`: its
-- last argument says which, by its type.  DuckDB chooses while it binds, so the other ways are not in the plan.

-- The first way is chosen by a DATE, the second by a TIME, the third by a TIMESTAMP; `way` needs to be constant.
-- `cast_to_type(null, a)` lets DuckDB create a macro: it cannot bind that before the types are known.
create macro __spark.by_type(a, way) as /* inline */ struct_extract(row(null::date, null::time, null::timestamp, cast_to_type(null, a)), way);
create macro __spark.digits(a) as /* inline */ case
    when typeof(a) like 'DECIMAL%' then regexp_extract(typeof(a), '(\d+),', 1)::integer
    when typeof(a) = 'TINYINT' then 3 when typeof(a) = 'SMALLINT' then 5
    when typeof(a) = 'INTEGER' then 10 when typeof(a) = 'BIGINT' then 20 else 38 end;
create macro __spark.scale(a) as /* inline */ case
    when typeof(a) like 'DECIMAL%' then regexp_extract(typeof(a), ',(\d+)', 1)::integer else 0 end;
create macro __spark.is_decimal(a) as /* inline */ typeof(a) like 'DECIMAL%';
create macro __spark.is_float(a) as /* inline */ typeof(a) in ('DOUBLE', 'FLOAT');

-- A value of DECIMAL(width, scale), which are computed from the type of `a`; `[a]` lets DuckDB create the macro.
create macro __spark.decimal_type(a, width, scale) as /* inline */ from_json('0', left(typeof([a]), 0) || '"DECIMAL(' || width || ',' || scale || ')"');
-- Is the result a decimal: are both decimals or integers?
create macro __spark.exact(a, b) as /* inline */ ((__spark.is_decimal(a) or __spark.is_decimal(b)) and not __spark.is_float(a) and not __spark.is_float(b));
-- DuckDB computes with decimals of up to 18 digits within 18 digits; an operand of more makes room.
create macro __spark.widened(a) as /* inline */ cast_to_type(a, coalesce(cast_to_type(null, a), null::decimal(19, 0)));
create macro __spark.digits_of(a, da) as /* inline */ case when da > 0 then da else __spark.digits(a) end;
create macro __spark.scale_of_38(p, s) as /* inline */ greatest(38 - (p - s), least(s, 6));
create macro __spark.sum_scale(a, b) as /* inline */ greatest(__spark.scale(a), __spark.scale(b));
create macro __spark.sum_digits(a, b, da, db) as /* inline */
    greatest(__spark.digits_of(a, da) - __spark.scale(a), __spark.digits_of(b, db) - __spark.scale(b)) + greatest(__spark.scale(a), __spark.scale(b)) + 1;
create macro __spark.difference_scale(a, b) as /* inline */ __spark.sum_scale(a, b);
create macro __spark.difference_digits(a, b, da, db) as /* inline */ __spark.sum_digits(a, b, da, db);
create macro __spark.product_scale(a, b) as /* inline */ __spark.scale(a) + __spark.scale(b);
create macro __spark.product_digits(a, b, da, db) as /* inline */ __spark.digits_of(a, da) + __spark.digits_of(b, db) + 1;

create macro __spark.exact_way(a, b, digits) as /* inline */ __spark.by_type(a, case when not __spark.exact(a, b) then 1 when digits <= 38 then 2 else 3 end);
create macro __spark.sum(a, b, da, db) as /* inline da db */ __spark.sum_by(a, b, da, db, __spark.exact_way(a, b, __spark.sum_digits(a, b, da, db)));
create macro __spark.sum_by
    (a, b, da, db, way date) as /* inline */ system.main."+"(a, b),
    (a, b, da, db, way time) as /* inline */ cast_to_type(system.main."+"(__spark.widened(a), b),
        __spark.decimal_type(a, __spark.sum_digits(a, b, da, db), __spark.sum_scale(a, b))),
    (a, b, da, db, way timestamp) as /* inline */ cast_to_type(
        "spark.decimal_arithmetic.1"('+', a::varchar, b::varchar, __spark.scale_of_38(__spark.sum_digits(a, b, da, db), __spark.sum_scale(a, b))),
        __spark.decimal_type(a, 38, __spark.scale_of_38(__spark.sum_digits(a, b, da, db), __spark.sum_scale(a, b))));
create macro __spark.difference(a, b, da, db) as /* inline da db */ __spark.difference_by(a, b, da, db, __spark.exact_way(a, b, __spark.difference_digits(a, b, da, db)));
create macro __spark.difference_by
    (a, b, da, db, way date) as /* inline */ system.main."-"(a, b),
    (a, b, da, db, way time) as /* inline */ cast_to_type(system.main."-"(__spark.widened(a), b),
        __spark.decimal_type(a, __spark.difference_digits(a, b, da, db), __spark.difference_scale(a, b))),
    (a, b, da, db, way timestamp) as /* inline */ cast_to_type(
        "spark.decimal_arithmetic.1"('-', a::varchar, b::varchar, __spark.scale_of_38(__spark.difference_digits(a, b, da, db), __spark.difference_scale(a, b))),
        __spark.decimal_type(a, 38, __spark.scale_of_38(__spark.difference_digits(a, b, da, db), __spark.difference_scale(a, b))));
create macro __spark.product(a, b, da, db) as /* inline da db */ __spark.product_by(a, b, da, db, __spark.exact_way(a, b, __spark.product_digits(a, b, da, db)));
create macro __spark.product_by
    (a, b, da, db, way date) as /* inline */ system.main."*"(a, b),
    (a, b, da, db, way time) as /* inline */ cast_to_type(system.main."*"(__spark.widened(a), b),
        __spark.decimal_type(a, __spark.product_digits(a, b, da, db), __spark.product_scale(a, b))),
    (a, b, da, db, way timestamp) as /* inline */ cast_to_type(
        "spark.decimal_arithmetic.1"('*', a::varchar, b::varchar, __spark.scale_of_38(__spark.product_digits(a, b, da, db), __spark.product_scale(a, b))),
        __spark.decimal_type(a, 38, __spark.scale_of_38(__spark.product_digits(a, b, da, db), __spark.product_scale(a, b))));

create macro __spark."+"
    (a tinyint, b tinyint, da integer, db integer) as system.main."+"(a, b),
    (a smallint, b smallint, da integer, db integer) as system.main."+"(a, b),
    (a integer, b integer, da integer, db integer) as system.main."+"(a, b),
    (a bigint, b bigint, da integer, db integer) as system.main."+"(a, b),
    (a date, b interval, da integer, db integer) as case when coalesce((a + b)::date::timestamp = a + b, true) then (a + b)::date
        else error('DATE + INTERVAL of hours is not supported: cast the date to TIMESTAMP first') end,
    (a interval, b date, da integer, db integer) as case when coalesce((a + b)::date::timestamp = a + b, true) then (a + b)::date
        else error('DATE + INTERVAL of hours is not supported: cast the date to TIMESTAMP first') end,
    (a date, b integer, da integer, db integer) as (a + b)::date,
    (a, b, da, db) as /* inline */ __spark.sum(a, b, da, db);
create macro __spark."-"
    (a tinyint, b tinyint, da integer, db integer) as system.main."-"(a, b),
    (a smallint, b smallint, da integer, db integer) as system.main."-"(a, b),
    (a integer, b integer, da integer, db integer) as system.main."-"(a, b),
    (a bigint, b bigint, da integer, db integer) as system.main."-"(a, b),
    (a date, b integer, da integer, db integer) as (a - b)::date,
    (a date, b interval, da integer, db integer) as case when coalesce((a - b)::date::timestamp = a - b, true) then (a - b)::date
        else error('DATE - INTERVAL of hours is not supported: cast the date to TIMESTAMP first') end,
    (a date, b date, da integer, db integer) as to_days((a - b)::integer),
    (a date, b varchar, da integer, db integer) as to_days((a - __spark.cast_date(b))::integer),
    (a varchar, b date, da integer, db integer) as to_days((__spark.cast_date(a) - b)::integer),
    (a, b, da, db) as /* inline */ __spark.difference(a, b, da, db);
create macro __spark."*"
    (a tinyint, b tinyint, da integer, db integer) as system.main."*"(a, b),
    (a smallint, b smallint, da integer, db integer) as system.main."*"(a, b),
    (a integer, b integer, da integer, db integer) as system.main."*"(a, b),
    (a bigint, b bigint, da integer, db integer) as system.main."*"(a, b),
    (a, b, da, db) as /* inline */ __spark.product(a, b, da, db);

-- `da` and `db` are the digits of an integer literal, which has no more than it shows; 0 for all else.
create macro __spark.divided(a, b, da, db, lenient) as /* inline da db lenient */
    __spark.divided_by(a, b, da, db, lenient, __spark.by_type(a, 1 + __spark.exact(a, b)::integer));
create macro __spark.divided_by
    (a, b, da, db, lenient, way date) as /* inline da db lenient */ case when a is null then null
        when b::double = 0 then case when lenient then null else error('division by zero') end
        else a::double / b::double end,
    (a, b, da, db, lenient, way time) as /* inline */ cast_to_type(
        "spark.decimal_quotient.1"(a::varchar, b::varchar, __spark.quotient_scale(a, b, da, db), lenient),
        __spark.decimal_type(a, __spark.quotient_digits(a, b, da, db), __spark.quotient_scale(a, b, da, db)));
-- The digits of a quotient: Spark keeps at least six after the point when there is no room for all within 38.
create macro __spark.quotient_scale(a, b, da, db) as /* inline */
    case when __spark.digits_of(a, da) - __spark.scale(a) + __spark.scale(b) + greatest(6, __spark.scale(a) + __spark.digits_of(b, db) + 1) <= 38
        then greatest(6, __spark.scale(a) + __spark.digits_of(b, db) + 1)
        else greatest(6, 38 - (__spark.digits_of(a, da) - __spark.scale(a) + __spark.scale(b))) end;
create macro __spark.quotient_digits(a, b, da, db) as /* inline */
    least(38, __spark.digits_of(a, da) - __spark.scale(a) + __spark.scale(b) + __spark.quotient_scale(a, b, da, db));

create macro __spark.div
    (a bigint, b bigint) as case when a is null then null when b = 0 then error('division by zero') else a // b end,
    (a, b) as case when a is null then null when b = 0 then error('division by zero')
        else "spark.decimal_quotient.1"(a::varchar, b::varchar, -1, true)::bigint end;
create macro __spark.remainder(a, b) as case when a is null then null when b = 0 then error('division by zero') else system.main."%"(a, b) end;
create macro __spark."%"(a, b, da, db) as /* inline da db */ __spark.remainder_by(a, b, da, db, __spark.by_type(a, 1 + __spark.exact(a, b)::integer));
create macro __spark.remainder_by
    (a, b, da, db, way date) as /* inline */ __spark.remainder(a, b),
    (a, b, da, db, way time) as /* inline */ cast_to_type(__spark.remainder(__spark.widened(a), b),
        __spark.decimal_type(a, greatest(1, least(38, least(__spark.digits_of(a, da) - __spark.scale(a), __spark.digits_of(b, db) - __spark.scale(b)) + __spark.sum_scale(a, b))),
            __spark.sum_scale(a, b)));
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
