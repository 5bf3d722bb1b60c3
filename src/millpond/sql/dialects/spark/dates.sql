-- Dates and times, in the time zone UTC: a text stands for what a CAST makes of it.

create macro __spark.as_date(x) as __spark.cast_date(x);
create macro __spark.as_ntz
    (x bigint) as case when x is not null then error('a number is not a date') end::timestamp,
    (x varchar) as "spark.timestamp_of_text.1"(x, true, true),
    (x date) as x::timestamp,
    (x timestamp) as x,
    (x timestamptz) as x::timestamp;
create macro __spark.zoned(x) as make_timestamptz(epoch_us(x));
-- A result has a time zone unless the argument has none.
create macro __spark.like_argument(made, x) as struct_extract(row(
        case when typeof(x) <> 'TIMESTAMP' then __spark.zoned(made) end, case when typeof(x) = 'TIMESTAMP' then made end,
        cast_to_type(null, x)), 1 + (typeof(x) = 'TIMESTAMP')::integer);

create macro __spark.date_add(d, n) as (__spark.as_date(d) + __spark.cast_int(n))::date;
create macro __spark.date_sub(d, n) as (__spark.as_date(d) - __spark.cast_int(n))::date;
create macro __spark.date_diff(a, b) as (__spark.as_date(a) - __spark.as_date(b))::integer;
create macro __spark.timestamp_add(u, n, t) as __spark.like_argument(__spark.as_ntz(t) + case u
    when 'year' then to_months((n * 12)::integer) when 'quarter' then to_months((n * 3)::integer) when 'month' then to_months(n::integer)
    when 'week' then to_days((n * 7)::integer) when 'day' then to_days(n::integer) when 'hour' then to_hours(n::bigint)
    when 'minute' then to_minutes(n::bigint) when 'second' then to_seconds(n) when 'millisecond' then to_milliseconds(n)
    else to_microseconds(n::bigint) end, t);
create macro __spark.add_months(d, n) as (__spark.as_date(d) + to_months(__spark.cast_int(n)))::date;
create macro __spark.months_between
    (a, b) as "spark.months_between.1"(__spark.as_ntz(a), __spark.as_ntz(b), true),
    (a, b, r) as "spark.months_between.1"(__spark.as_ntz(a), __spark.as_ntz(b), r);
create macro __spark.last_day(d) as last_day(__spark.as_date(d));
create macro __spark.weekday_of(w) as case
    when lower(w) in ('mo', 'mon', 'monday') then 1 when lower(w) in ('tu', 'tue', 'tuesday') then 2
    when lower(w) in ('we', 'wed', 'wednesday') then 3 when lower(w) in ('th', 'thu', 'thursday') then 4
    when lower(w) in ('fr', 'fri', 'friday') then 5 when lower(w) in ('sa', 'sat', 'saturday') then 6
    when lower(w) in ('su', 'sun', 'sunday') then 7 when w is not null then error('there is no day of the week ' || w) end;
create macro __spark.next_day(d, w) as (__spark.as_date(d)
    + ((__spark.weekday_of(w) - isodow(__spark.as_date(d)) + 6) % 7 + 1)::integer)::date;

create macro __spark.year(x) as year(__spark.as_ntz(x))::integer;
create macro __spark.quarter(x) as quarter(__spark.as_ntz(x))::integer;
create macro __spark.month(x) as month(__spark.as_ntz(x))::integer;
create macro __spark.day(x) as day(__spark.as_ntz(x))::integer;
create macro __spark.dayofmonth(x) as day(__spark.as_ntz(x))::integer;
create macro __spark.dayofweek(x) as (dayofweek(__spark.as_ntz(x)) + 1)::integer;
create macro __spark.weekday(x) as (isodow(__spark.as_ntz(x)) - 1)::integer;
create macro __spark.dayofyear(x) as dayofyear(__spark.as_ntz(x))::integer;
create macro __spark.weekofyear(x) as weekofyear(__spark.as_ntz(x))::integer;
create macro __spark.hour(x) as hour(__spark.as_ntz(x))::integer;
create macro __spark.minute(x) as minute(__spark.as_ntz(x))::integer;
create macro __spark.second(x) as second(__spark.as_ntz(x))::integer;
create macro __spark.dayname(x) as substr(dayname(__spark.as_ntz(x)), 1, 3);
create macro __spark.monthname(x) as substr(monthname(__spark.as_ntz(x)), 1, 3);
create macro __spark.date_part_of(p, t) as case
    when p in ('year', 'y', 'years', 'yr', 'yrs') then year(t) when p in ('yearofweek') then isoyear(t)
    when p in ('quarter', 'qtr') then quarter(t) when p in ('month', 'mon', 'mons', 'months') then month(t)
    when p in ('week', 'w', 'weeks') then weekofyear(t) when p in ('day', 'd', 'days') then day(t)
    when p in ('dayofweek', 'dow') then dayofweek(t) + 1 when p in ('dayofweek_iso', 'dow_iso') then isodow(t) when p in ('doy') then dayofyear(t)
    when p in ('hour', 'h', 'hours', 'hr', 'hrs') then hour(t) when p in ('minute', 'm', 'min', 'mins', 'minutes') then minute(t)
    when p in ('second', 's', 'sec', 'seconds', 'secs') then null
    else error('there is no part ' || p || ' of a date') end::integer;
create macro __spark.is_second(p) as /* inline */ lower(p) in ('second', 's', 'sec', 'seconds', 'secs');
create macro __spark.date_part(p, x) as /* inline p */ __spark.date_part_by(p, x, __spark.by_type(x,
    case when __spark.is_second(p) then 2 else 1 end));
create macro __spark.date_part_by
    (p, x interval, way date) as __spark.interval_part(lower(p), x),
    (p, x interval, way time) as /* inline */ (__spark.micros_without_months(x) % 60000000 * 0.000001::decimal(6, 6))::decimal(8, 6),
    (p, x, way date) as __spark.date_part_of(lower(p), __spark.as_ntz(x)),
    (p, x, way time) as __spark.second_of(__spark.as_ntz(x));
create macro __spark.second_of(t) as (second(t) + microsecond(t) % 1000000 * 0.000001::decimal(6, 6))::decimal(8, 6);
create macro __spark.micros_without_months(x) as epoch_us(x - to_months((datepart('year', x) * 12 + datepart('month', x))::integer));
create macro __spark.interval_part(p, x) as case
    when p in ('year', 'y', 'years', 'yr', 'yrs') then datepart('year', x) when p in ('month', 'mon', 'mons', 'months') then datepart('month', x)
    when p in ('day', 'd', 'days') then __spark.cut_quotient(__spark.micros_without_months(x), 86400000000)
    when p in ('hour', 'h', 'hours', 'hr', 'hrs') then __spark.cut_quotient(__spark.micros_without_months(x), 3600000000) % 24
    when p in ('minute', 'm', 'min', 'mins', 'minutes') then __spark.cut_quotient(__spark.micros_without_months(x), 60000000) % 60
    else error('there is no part ' || p || ' of an interval') end::integer;
create macro __spark.cut_quotient(a, b) as case when a < 0 then -(-a // b) else a // b end;
create macro __spark.datepart(p, x) as /* inline */ __spark.date_part(p, x);

create macro __spark.trunc_unit(u, t) as case
    when u in ('year', 'yyyy', 'yy') then date_trunc('year', t) when u = 'quarter' then date_trunc('quarter', t)
    when u in ('month', 'mm', 'mon') then date_trunc('month', t) when u = 'week' then date_trunc('week', t) end;
create macro __spark.trunc(d, u) as __spark.trunc_unit(lower(u), __spark.as_date(d)::timestamp)::date;
create macro __spark.date_trunc(u, t) as __spark.like_argument(case
    when lower(u) in ('day', 'dd') then date_trunc('day', __spark.as_ntz(t)) when lower(u) = 'hour' then date_trunc('hour', __spark.as_ntz(t))
    when lower(u) = 'minute' then date_trunc('minute', __spark.as_ntz(t)) when lower(u) = 'second' then date_trunc('second', __spark.as_ntz(t))
    when lower(u) = 'millisecond' then date_trunc('millisecond', __spark.as_ntz(t)) when lower(u) = 'microsecond' then __spark.as_ntz(t)
    else __spark.trunc_unit(lower(u), __spark.as_ntz(t)) end, t);

create macro __spark.date_format(t, f) as "spark.format_time.1"(__spark.as_ntz(t), f);
create macro __spark.to_date
    (x) as __spark.cast_date(x),
    (x, f) as "spark.parse_time.1"(__spark.cast_string(x), f, true)::date;
create macro __spark.try_to_date
    (x) as __spark.try_cast_date(x),
    (x, f) as "spark.parse_time.1"(__spark.cast_string(x), f, false)::date;
create macro __spark.to_timestamp
    (x) as __spark.cast_timestamp(x),
    (x, f) as __spark.zoned("spark.parse_time.1"(__spark.cast_string(x), f, true));
create macro __spark.to_timestamp_ltz
    (x) as __spark.to_timestamp(x),
    (x, f) as __spark.to_timestamp(x, f);
create macro __spark.to_timestamp_ntz
    (x) as __spark.cast_timestamp_ntz(x),
    (x, f) as "spark.parse_time.1"(__spark.cast_string(x), f, true);
create macro __spark.try_to_timestamp
    (x) as __spark.try_cast_timestamp(x),
    (x, f) as __spark.zoned("spark.parse_time.1"(__spark.cast_string(x), f, false));
create macro __spark.seconds_of(t) as epoch_us(t) // 1000000;
create macro __spark.unix_timestamp
    (x varchar) as __spark.seconds_of("spark.parse_time.1"(x, 'yyyy-MM-dd HH:mm:ss', true)),
    (x) as __spark.seconds_of(__spark.as_ntz(x)),
    (x varchar, f varchar) as __spark.seconds_of("spark.parse_time.1"(x, f, true)),
    (x, f) as __spark.seconds_of(__spark.as_ntz(x));
create macro __spark.to_unix_timestamp
    (x) as __spark.unix_timestamp(x),
    (x, f) as __spark.unix_timestamp(x, f);
create macro __spark.from_unixtime
    (n) as __spark.from_unixtime(n, 'yyyy-MM-dd HH:mm:ss'),
    (n, f) as "spark.format_time.1"(make_timestamp(__spark.cast_bigint(n) * 1000000), f);
create macro __spark.timestamp_seconds
    (n bigint) as make_timestamptz(n * 1000000),
    (n) as make_timestamptz(case when typeof(n) in ('DOUBLE', 'FLOAT') then trunc(n::double * 1000000)::bigint
        when n::varchar::decimal(30, 6) <> n then error('a time has no more than microseconds: round the number first')
        else (n::varchar::decimal(30, 6) * 1000000::decimal(7, 0))::bigint end);
create macro __spark.timestamp_millis(n) as make_timestamptz(n::bigint * 1000);
create macro __spark.timestamp_micros(n) as make_timestamptz(n::bigint);
create macro __spark.unix_seconds(t) as __spark.floor_div(epoch_us(__spark.as_ntz(t)), 1000000);
create macro __spark.unix_millis(t) as __spark.floor_div(epoch_us(__spark.as_ntz(t)), 1000);
create macro __spark.unix_micros(t) as epoch_us(__spark.as_ntz(t));
create macro __spark.unix_date(d) as (__spark.as_date(d) - date '1970-01-01')::integer;
create macro __spark.date_from_unix_date(n) as (date '1970-01-01' + n::integer)::date;
create macro __spark.make_date(y, m, d) as make_date(__spark.cast_int(y)::bigint, __spark.cast_int(m)::bigint, __spark.cast_int(d)::bigint);
create macro __spark.make_timestamp_ntz
    (y, mo, d, h, mi, s) as case when s::double = 60 then make_timestamp(y::bigint, mo::bigint, d::bigint, h::bigint, mi::bigint, 0::double) + interval 1 minute
        else make_timestamp(y::bigint, mo::bigint, d::bigint, h::bigint, mi::bigint, s::double) end;
create macro __spark.make_timestamp
    (d) as __spark.zoned(__spark.as_date(d)::timestamp),
    (y, mo, d, h, mi, s) as __spark.zoned(__spark.make_timestamp_ntz(y, mo, d, h, mi, s)),
    (y, mo, d, h, mi, s, z) as __spark.zoned("spark.zoned.1"(__spark.make_timestamp_ntz(y, mo, d, h, mi, s), z, 'UTC'));
create macro __spark.make_timestamp_ltz
    (y, mo, d, h, mi, s) as __spark.make_timestamp(y, mo, d, h, mi, s),
    (y, mo, d, h, mi, s, z) as __spark.make_timestamp(y, mo, d, h, mi, s, z);
create macro __spark.from_utc_timestamp(t, z) as __spark.zoned("spark.zoned.1"(__spark.as_ntz(t), 'UTC', z));
create macro __spark.to_utc_timestamp(t, z) as __spark.zoned("spark.zoned.1"(__spark.as_ntz(t), z, 'UTC'));
create macro __spark.convert_timezone
    (target, t) as "spark.zoned.1"(__spark.as_ntz(t), 'UTC', target),
    (source, target, t) as "spark.zoned.1"(__spark.as_ntz(t), source, target);
create macro __spark.window_time(w) as struct_extract(w, 'end') - interval 1 microsecond;

create macro __spark.try_make_interval
    () as __spark.make_interval(),
    (y) as try(__spark.make_interval(y)),
    (y, mo) as try(__spark.make_interval(y, mo)),
    (y, mo, w) as try(__spark.make_interval(y, mo, w)),
    (y, mo, w, d) as try(__spark.make_interval(y, mo, w, d)),
    (y, mo, w, d, h) as try(__spark.make_interval(y, mo, w, d, h)),
    (y, mo, w, d, h, m) as try(__spark.make_interval(y, mo, w, d, h, m)),
    (y, mo, w, d, h, m, s) as try(__spark.make_interval(y, mo, w, d, h, m, s));
create macro __spark.time_bucket
    (w, t) as __spark.time_bucket_of(w, t, timestamp '1970-01-01'),
    (w, t, o) as __spark.time_bucket_of(w, t, __spark.as_ntz(o));
create macro __spark.time_bucket_of(w, t, o) as __spark.like_argument("spark.time_bucket.1"(
    (datepart('year', w) * 12 + datepart('month', w))::integer, __spark.micros_without_months(w), __spark.as_ntz(t), o), t);
create macro __spark.try_make_timestamp_ntz
    (y, mo, d, h, mi, s) as try(__spark.make_timestamp_ntz(y, mo, d, h, mi, s));
create macro __spark.try_make_timestamp
    (d) as __spark.make_timestamp(d),
    (y, mo, d, h, mi, s) as try(__spark.make_timestamp(y, mo, d, h, mi, s)),
    (y, mo, d, h, mi, s, z) as try(__spark.make_timestamp(y, mo, d, h, mi, s, z));
create macro __spark.try_make_timestamp_ltz
    (y, mo, d, h, mi, s) as try(__spark.make_timestamp(y, mo, d, h, mi, s)),
    (y, mo, d, h, mi, s, z) as try(__spark.make_timestamp(y, mo, d, h, mi, s, z));
create macro __spark.micros_of(s) as round(s::decimal(18, 6) * 1000000)::bigint;
create macro __spark.make_dt_interval
    () as interval 0 seconds,
    (d) as to_days(d::integer),
    (d, h) as to_days(d::integer) + to_hours(h::bigint),
    (d, h, m) as to_days(d::integer) + to_hours(h::bigint) + to_minutes(m::bigint),
    (d, h, m, s) as to_days(d::integer) + to_hours(h::bigint) + to_minutes(m::bigint) + to_microseconds(__spark.micros_of(s));
create macro __spark.make_ym_interval
    () as interval 0 months,
    (y) as to_years(y::integer),
    (y, m) as to_years(y::integer) + to_months(m::integer);
create macro __spark.make_interval
    () as interval 0 seconds,
    (y) as to_years(y::integer),
    (y, mo) as to_years(y::integer) + to_months(mo::integer),
    (y, mo, w) as to_years(y::integer) + to_months(mo::integer) + to_weeks(w::integer),
    (y, mo, w, d) as __spark.make_interval(y, mo, w) + to_days(d::integer),
    (y, mo, w, d, h) as __spark.make_interval(y, mo, w) + __spark.make_dt_interval(d, h),
    (y, mo, w, d, h, m) as __spark.make_interval(y, mo, w) + __spark.make_dt_interval(d, h, m),
    (y, mo, w, d, h, m, s) as __spark.make_interval(y, mo, w) + __spark.make_dt_interval(d, h, m, s);
