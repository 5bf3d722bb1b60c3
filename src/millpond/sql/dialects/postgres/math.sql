-- Mathematics.  A numeric is a DECIMAL of DuckDB, and an overload with decimal(38, 16) takes it before one with double.
-- internal: logarithm_of angle generate_series_rows numeric_series null_for_nan fitted_line

create macro __pg.ceil(a bigint) as a::double, (a) as system.main.ceil(a);
create macro __pg.ceiling(a bigint) as a::double, (a) as system.main.ceil(a);
create macro __pg.floor(a bigint) as a::double, (a) as system.main.floor(a);
create macro __pg.round
    (a bigint) as a::double,
    (a double) as system.main.round_even(a, 0),
    (a decimal(38, 16)) as system.main.round(a),
    (a, b) as system.main.round(a, b);
create macro __pg.sign(a double) as case when isnan(a) then 0 else system.main.sign(a) end::double,
    (a decimal(38, 16)) as system.main.sign(a)::decimal(18, 0);
create macro __pg.sqrt
    (a double) as case when a < 0 then error('cannot take square root of a negative number')::double
        else system.main.sqrt(a) end,
    (a decimal(38, 16)) as "pg.numeric_sqrt.1"(a::varchar)::decimal(38, 20);
create macro __pg.exp
    (a double) as "pg.float_exp.1"(a),
    (a decimal(38, 16)) as "pg.numeric_exp.1"(a::varchar)::decimal(38, 16);
create macro __pg.ln
    (a double) as __pg.logarithm_of(a, system.main.ln(case when a > 0 then a end)),
    (a decimal(38, 16)) as "pg.numeric_ln.1"(a::varchar)::decimal(38, 20);
create macro __pg.log
    (a double) as __pg.logarithm_of(a, system.main.log10(case when a > 0 then a end)),
    (a decimal(38, 16)) as "pg.numeric_log.1"('10', a::varchar)::decimal(38, 20),
    (a, b) as "pg.numeric_log.1"(a::varchar, b::varchar)::decimal(38, 20);
create macro __pg.log10
    (a double) as __pg.logarithm_of(a, system.main.log10(case when a > 0 then a end)),
    (a decimal(38, 16)) as "pg.numeric_log.1"('10', a::varchar)::decimal(38, 20);
create macro __pg.logarithm_of(a, b) as
    case when a = 0 then error('cannot take logarithm of zero')::double
        when a < 0 then error('cannot take logarithm of a negative number')::double
        when isnan(a) then a else b end;
create macro __pg.power
    (a double, b double) as "pg.float_power.1"(a, b),
    (a decimal(38, 16), b decimal(38, 16)) as "pg.numeric_power.2"(a::varchar, b::varchar)::decimal(38, 16);
create macro __pg."^"
    (a double, b double) as "pg.float_power.1"(a, b),
    (a decimal(38, 16), b decimal(38, 16)) as "pg.numeric_power.2"(a::varchar, b::varchar)::decimal(38, 16);
create macro __pg.pow
    (a double, b double) as "pg.float_power.1"(a, b),
    (a decimal(38, 16), b decimal(38, 16)) as "pg.numeric_power.2"(a::varchar, b::varchar)::decimal(38, 16);
create macro __pg.div(a, b) as "pg.numeric_div_trunc.1"(a::varchar, b::varchar)::decimal(38, 0);
create macro __pg.mod
    (a smallint, b smallint) as case when b = 0 and a is not null then error('division by zero')::smallint else system.main."%"(a, b) end,
    (a integer, b integer) as case when b = 0 and a is not null then error('division by zero')::integer else system.main."%"(a, b) end,
    (a bigint, b bigint) as case when b = 0 and a is not null then error('division by zero')::bigint else system.main."%"(a, b) end,
    (a, b) as case when b = 0 and a is not null then error('division by zero') else system.main."%"(a, b) end;
create macro __pg.gcd
    (a integer, b integer) as system.main.gcd(a, b)::integer,
    (a bigint, b bigint) as system.main.gcd(a::hugeint, b::hugeint)::bigint,
    (a decimal(38, 16), b decimal(38, 16)) as "pg.numeric_gcd.1"(a::varchar, b::varchar)::decimal(38, 16);
create macro __pg.lcm
    (a integer, b integer) as system.main.lcm(a::hugeint, b::hugeint)::integer,
    (a bigint, b bigint) as system.main.lcm(a::hugeint, b::hugeint)::bigint,
    (a decimal(38, 16), b decimal(38, 16)) as "pg.numeric_lcm.1"(a::varchar, b::varchar)::decimal(38, 16);
create macro __pg.factorial(a) as "pg.factorial.1"(a)::decimal(38, 0);
create macro __pg.trunc
    (a bigint) as a::double,
    (a) as system.main.trunc(a),
    (a, b) as "pg.numeric_trunc.1"(a::varchar, b)::decimal(38, 16);
create macro __pg.scale(a) as "pg.numeric_scale.1"(a::varchar);
create macro __pg.min_scale(a) as "pg.numeric_min_scale.1"(a::varchar);
create macro __pg.trim_scale(a) as a;
create macro __pg.width_bucket
    (a double, b double, c double, d bigint) as "pg.width_bucket.1"(a::varchar, b::varchar, c::varchar, d),
    (a decimal(38, 16), b decimal(38, 16), c decimal(38, 16), d bigint) as
        "pg.width_bucket.1"(a::varchar, b::varchar, c::varchar, d),
    (a, b) as case when a is not null then len(list_filter(b, lambda x: x <= a))::integer end;
create macro __pg.sin(a) as __pg.angle(a, 'sin');
create macro __pg.cos(a) as __pg.angle(a, 'cos');
create macro __pg.tan(a) as __pg.angle(a, 'tan');
create macro __pg.cot(a) as __pg.angle(a, 'cot');
create macro __pg.angle(a, b) as
    case when isinf(a) then error('input is out of range')::double
        when b = 'sin' then system.main.sin(case when not isinf(a) then a end)
        when b = 'cos' then system.main.cos(case when not isinf(a) then a end)
        when b = 'tan' then system.main.tan(case when not isinf(a) then a end)
        when a = 0 then 'infinity'::double else system.main.cot(case when not isinf(a) and a <> 0 then a end) end;
create macro __pg.asin(a) as case when abs(a) > 1 and not isnan(a) then error('input is out of range')::double else system.main.asin(a) end;
create macro __pg.acos(a) as case when abs(a) > 1 and not isnan(a) then error('input is out of range')::double else system.main.acos(a) end;
create macro __pg.atanh(a) as case when abs(a) = 1 then a * 'infinity'::double
    when abs(a) > 1 and not isnan(a) then error('input is out of range')::double else system.main.atanh(a) end;
create macro __pg.acosh(a) as case when a < 1 then error('input is out of range')::double else system.main.acosh(a) end;
create macro __pg.sind(a) as "pg.degree_function.1"('sind', a);
create macro __pg.cosd(a) as "pg.degree_function.1"('cosd', a);
create macro __pg.tand(a) as "pg.degree_function.1"('tand', a);
create macro __pg.cotd(a) as "pg.degree_function.1"('cotd', a);
create macro __pg.asind(a) as "pg.degree_function.1"('asind', a);
create macro __pg.acosd(a) as "pg.degree_function.1"('acosd', a);
create macro __pg.atand(a) as "pg.degree_function.1"('atand', a);
create macro __pg.atan2d(a, b) as "pg.atan2d.1"(a, b);
create macro __pg.num_nulls(a) as len(list_filter(a, lambda x: x is null))::integer;
create macro __pg.num_nonnulls(a) as len(list_filter(a, lambda x: x is not null))::integer;
-- Both ends belong to the series.
create macro __pg.generate_series_rows
    (a integer, b integer) as system.main.generate_series(a, b)::integer[],
    (a integer, b integer, c integer) as
        case when c = 0 and a is not null and b is not null then error('step size cannot equal zero')::integer[]
            else system.main.generate_series(a, b, case when c <> 0 then c end)::integer[] end,
    (a bigint, b bigint) as system.main.generate_series(a, b),
    (a bigint, b bigint, c bigint) as
        case when c = 0 and a is not null and b is not null then error('step size cannot equal zero')::bigint[]
            else system.main.generate_series(a, b, case when c <> 0 then c end) end,
    (a timestamp, b timestamp, c interval) as system.main.generate_series(a, b, c),
    (a timestamptz, b timestamptz, c interval) as
        case when current_setting('TimeZone') = 'UTC' then system.main.generate_series(a, b, c)
            else system.main.generate_series(a, b, case
                when datepart('year', c) <> 0 or datepart('month', c) <> 0 or datepart('day', c) <> 0
                    then error('a series of days or months is not supported over times with a zone: SET TimeZone = ''UTC''')::interval
                else c end) end,
    (a decimal(38, 16), b decimal(38, 16)) as __pg.numeric_series(a, b, 1::decimal(38, 16)),
    (a decimal(38, 16), b decimal(38, 16), c decimal(38, 16)) as __pg.numeric_series(a, b, c);
create macro __pg.numeric_series(a, b, c) as
    case when c = 0 and a is not null and b is not null then error('step size cannot equal zero')::decimal(38, 16)[]
        else list_transform("pg.numeric_series.1"(a::varchar, b::varchar, c::varchar), lambda x: x::decimal(38, 16)) end;
-- DuckDB's statistics are NaN where PostgreSQL's are NULL: all values are equal.
create macro __pg.null_for_nan(a) as case when isnan(a) then null else a end;
-- `n` counts the pairs with an infinity or NaN, which make all of them NaN.
create macro __pg.fitted_line(a, n) as case when n > 0 then 'nan'::double when isnan(a) then null else a end;
