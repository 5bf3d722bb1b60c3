-- Dates and times.
-- internal: zone_offset extract_epoch seconds_of extract_julian extract_whole truncated_in_zone truncated
-- internal: stride_us binned overlapping time_difference

create macro __pg.zone_offset(a) as
    case when isfinite(a) then epoch(a::timestamp - timezone('UTC', a))::bigint else 0 end;
-- EXTRACT returns a numeric, date_part a double; `calls.py` sends common fields to extract_whole.
create macro __pg.extract
    (a varchar, b timestamp) as "pg.extract_timestamp.1"(a, b)::decimal(38, 6),
    (a varchar, b timestamptz) as "pg.extract_timestamptz.1"(a, b::timestamp, __pg.zone_offset(b))::decimal(38, 6),
    (a varchar, b date) as "pg.extract_date.1"(a, b)::decimal(38, 6),
    (a varchar, b interval) as "pg.extract_interval.1"(a, b)::decimal(38, 6),
    (a varchar, b time) as "pg.extract_time.1"(a, b)::decimal(38, 6),
    (a varchar, b timetz) as "pg.extract_timetz.1"(a, b::varchar)::decimal(38, 6);
create macro __pg.extract_epoch
    (a varchar, b timestamp) as __pg.seconds_of(b, epoch_us(b)),
    (a varchar, b timestamptz) as __pg.seconds_of(b, epoch_us(b)),
    (a varchar, b date) as "pg.extract_date.1"(a, b)::decimal(38, 6),
    (a varchar, b interval) as "pg.extract_interval.1"(a, b)::decimal(38, 6),
    (a varchar, b time) as "pg.extract_time.1"(a, b)::decimal(38, 6),
    (a varchar, b timetz) as "pg.extract_timetz.1"(a, b::varchar)::decimal(38, 6);
create macro __pg.seconds_of(a, b) as
    case when isfinite(a) then (b::decimal(20, 0) * 0.000001)::decimal(38, 6)
        when a is not null then error('a numeric cannot be infinite')::decimal(38, 6) end;
create macro __pg.extract_julian
    (a varchar, b timestamp) as "pg.extract_timestamp.1"(a, b)::decimal(38, 20),
    (a varchar, b timestamptz) as "pg.extract_timestamptz.1"(a, b::timestamp, __pg.zone_offset(b))::decimal(38, 20),
    (a varchar, b date) as "pg.extract_date.1"(a, b)::decimal(38, 0);
create macro __pg.date_part
    (a varchar, b timestamp) as "pg.extract_timestamp.1"(a, b)::double,
    (a varchar, b timestamptz) as "pg.extract_timestamptz.1"(a, b::timestamp, __pg.zone_offset(b))::double,
    (a varchar, b date) as "pg.extract_timestamp.1"(a, b::timestamp)::double,
    (a varchar, b interval) as "pg.extract_interval.1"(a, b)::double,
    (a varchar, b time) as "pg.extract_time.1"(a, b)::double,
    (a varchar, b timetz) as "pg.extract_timetz.1"(a, b::varchar)::double;
create macro __pg.extract_whole
    (a varchar, b timestamp) as system.main.date_part(a, b)::decimal(18, 0),
    (a varchar, b timestamptz) as system.main.date_part(a, b)::decimal(18, 0),
    (a varchar, b date) as
        case when a in ('hour', 'minute', 'microseconds') then "pg.extract_date.1"(a, b)::decimal(18, 0)
            else system.main.date_part(a, b)::decimal(18, 0) end,
    (a varchar, b interval) as "pg.extract_interval.1"(a, b)::decimal(18, 0),
    (a varchar, b time) as "pg.extract_time.1"(a, b)::decimal(18, 0),
    (a varchar, b timetz) as "pg.extract_timetz.1"(a, b::varchar)::decimal(18, 0);
create macro __pg.date_trunc
    (a varchar, b timestamp) as __pg.truncated(a, b),
    (a varchar, b timestamptz) as
        case when current_setting('TimeZone') = 'UTC' then timezone('UTC', __pg.truncated(a, b::timestamp))
            else __pg.truncated_in_zone(a, b, current_setting('TimeZone')) end,
    (a varchar, b date) as timezone(current_setting('TimeZone'), __pg.truncated(a, b::timestamp)),
    (a, b, c) as __pg.truncated_in_zone(a, b, c),
    (a varchar, b interval) as "pg.trunc_interval.1"(a, b);
-- Parts of an hour are cut from the instant: the local time stands for two of them when clocks are set back.
create macro __pg.truncated_in_zone(a, b, c) as
    case when isfinite(b) and lower(a) in ('hour', 'hours', 'h', 'hr', 'hrs', 'minute', 'minutes', 'm', 'min', 'mins',
            'second', 'seconds', 's', 'sec', 'secs', 'millisecond', 'milliseconds', 'ms', 'msec', 'msecs', 'mseconds', 'msecond',
            'microsecond', 'microseconds', 'us', 'usec', 'usecs', 'useconds', 'usecond')
        then make_timestamptz(epoch_us(b) - (epoch_us(timezone(c, b)) - epoch_us(__pg.truncated(a, timezone(c, b)))))
        else timezone(c, __pg.truncated(a, timezone(c, b))) end;
create macro __pg.truncated(a, b) as
    case when not isfinite(b) then b
        when lower(a) in ('century', 'centuries', 'c', 'cent')
            then make_timestamp(((year(b) - 1) // 100 * 100 + 1)::bigint, 1, 1, 0, 0, 0)
        when lower(a) in ('millennium', 'millennia', 'mil', 'mils')
            then make_timestamp(((year(b) - 1) // 1000 * 1000 + 1)::bigint, 1, 1, 0, 0, 0)
        else system.main.date_trunc(a, b)::timestamp end;
create macro __pg.age
    (a timestamp, b timestamp) as "pg.age.2"(a, b),
    (a timestamptz, b timestamptz) as "pg.age.2"(a::timestamp, b::timestamp);
create macro __pg.date_bin
    (a interval, b timestamp, c timestamp) as
        case when a is null or b is null or c is null then null when not isfinite(b) then b
            when not isfinite(c) then error('origin out of range')::timestamp
            else make_timestamp(__pg.binned(__pg.stride_us(a), epoch_us(b), epoch_us(c))) end,
    (a interval, b timestamptz, c timestamptz) as
        case when a is null or b is null or c is null then null when not isfinite(b) then b
            when not isfinite(c) then error('origin out of range')::timestamptz
            else timezone('UTC', make_timestamp(__pg.binned(__pg.stride_us(a), epoch_us(b), epoch_us(c)))) end;
create macro __pg.stride_us(a) as
    case when datepart('year', a) <> 0 or datepart('month', a) <> 0
            then error('timestamps cannot be binned into intervals containing months or years')::bigint
        when epoch_us(a) <= 0 then error('stride must be greater than zero')::bigint
        else epoch_us(a) end;
create macro __pg.binned(a, b, c) as
    b - (b - c) % a - case when (b - c) % a < 0 then a else 0 end;
create macro __pg.isfinite
    (a date) as system.main.isfinite(a),
    (a timestamp) as system.main.isfinite(a),
    (a timestamptz) as system.main.isfinite(a),
    (a interval) as case when a is not null then true end;
create macro __pg.time_difference(a, b) as to_microseconds(date_diff('microsecond', b, a));
create macro __pg.justify_days(a) as "pg.justify_days.1"(a);
create macro __pg.justify_hours(a) as "pg.justify_hours.1"(a);
create macro __pg.justify_interval(a) as "pg.justify_interval.1"(a);
create macro __pg.make_date(year, month, day) as "pg.make_date.1"(year, month, day);
create macro __pg.make_time(hour, min, sec) as "pg.make_time.1"(hour, min, sec);
create macro __pg.make_timestamp(year, month, mday, hour, min, sec) as
    "pg.make_timestamp.1"(year, month, mday, hour, min, sec);
create macro __pg.make_timestamptz
    (year, month, mday, hour, min, sec) as
        timezone(current_setting('TimeZone'), "pg.make_timestamp.1"(year, month, mday, hour, min, sec)),
    (year, month, mday, hour, min, sec, timezone) as
        timezone(timezone, "pg.make_timestamp.1"(year, month, mday, hour, min, sec));
create macro __pg.make_interval(years := 0, months := 0, weeks := 0, days := 0,
    hours := 0, mins := 0, secs := 0.0) as
    "pg.make_interval.1"(years, months, weeks, days, hours, mins, secs);
create macro __pg.timezone
    (a varchar, b timestamp) as system.main.timezone(a, b),
    (a varchar, b timestamptz) as system.main.timezone(a, b),
    (a varchar, b timetz) as system.main.timezone(a, b),
    (a interval, b timestamp) as system.main.timezone('UTC', b - a),
    (a interval, b timestamptz) as system.main.timezone('UTC', b) + a,
    (a interval, b timetz) as system.main.timezone(a, b);
create macro __pg.overlaps
    (a timestamp, b timestamp, c timestamp, d timestamp) as __pg.overlapping(a, b, c, d),
    (a timestamp, b interval, c timestamp, d timestamp) as __pg.overlapping(a, a + b, c, d),
    (a timestamp, b timestamp, c timestamp, d interval) as __pg.overlapping(a, b, c, c + d),
    (a timestamp, b interval, c timestamp, d interval) as __pg.overlapping(a, a + b, c, c + d),
    (a timestamptz, b timestamptz, c timestamptz, d timestamptz) as __pg.overlapping(a, b, c, d),
    (a timestamptz, b interval, c timestamptz, d timestamptz) as __pg.overlapping(a, a + b, c, d),
    (a timestamptz, b timestamptz, c timestamptz, d interval) as __pg.overlapping(a, b, c, c + d),
    (a timestamptz, b interval, c timestamptz, d interval) as __pg.overlapping(a, a + b, c, c + d),
    (a time, b time, c time, d time) as __pg.overlapping(a, b, c, d),
    (a time, b interval, c time, d time) as __pg.overlapping(a, a + b, c, d),
    (a time, b time, c time, d interval) as __pg.overlapping(a, b, c, c + d),
    (a time, b interval, c time, d interval) as __pg.overlapping(a, a + b, c, c + d),
    (a timetz, b timetz, c timetz, d timetz) as __pg.overlapping(a, b, c, d);
-- A period whose end is NULL is one point; its ends may stand in either order.
create macro __pg.overlapping(a, b, c, d) as
    case when coalesce(a, b) is null or coalesce(c, d) is null then null
        when least(a, b) = least(c, d) then
            case when a is not null and b is not null and c is not null and d is not null then true end
        when least(a, b) > least(c, d) then
            case when c is null or d is null then null
                when least(a, b) < greatest(c, d) then true
                when a is null or b is null then null else false end
        else case when a is null or b is null then null
                when least(c, d) < greatest(a, b) then true
                when c is null or d is null then null else false end end;
