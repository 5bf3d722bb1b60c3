-- + and - of instants in a session whose time zone is not UTC.  There they take the place of the operators, so this file
-- names those of DuckDB in full: `+` would be the macro itself.
-- In UTC they are macros where an interval may have months and days or hours: PostgreSQL begins with the months.
-- They name their operands several times: `invoke` would bind each once, but inside a lambda its type is then unknown.
-- internal: plus_in_utc minus_in_utc plus_in_zone minus_in_zone as_instant as_interval added_in_zone moved_months moved_days micros_of

create macro __pg.plus_in_utc(a, b) as case when typeof([a]) is null or typeof([b]) is null then null else
    struct_extract(row(
        case when typeof(a) = 'TIMESTAMP WITH TIME ZONE' and typeof(b) = 'INTERVAL'
            then timezone('UTC', system.main."+"(timezone('UTC', __pg.as_instant(a)), __pg.as_interval(b))) end,
        case when typeof(b) = 'TIMESTAMP WITH TIME ZONE' and typeof(a) = 'INTERVAL'
            then timezone('UTC', system.main."+"(timezone('UTC', __pg.as_instant(b)), __pg.as_interval(a))) end,
        system.main."+"(a, b)),
    case when typeof(a) = 'TIMESTAMP WITH TIME ZONE' and typeof(b) = 'INTERVAL' then 1
        when typeof(b) = 'TIMESTAMP WITH TIME ZONE' and typeof(a) = 'INTERVAL' then 2 else 3 end) end;
create macro __pg.minus_in_utc
    (a) as system.main."-"(a),
    (a, b) as case when typeof([a]) is null or typeof([b]) is null then null else
    struct_extract(row(
        case when typeof(a) = 'TIMESTAMP WITH TIME ZONE' and typeof(b) = 'INTERVAL'
            then timezone('UTC', system.main."-"(timezone('UTC', __pg.as_instant(a)), __pg.as_interval(b))) end,
        system.main."-"(a, b)),
    case when typeof(a) = 'TIMESTAMP WITH TIME ZONE' and typeof(b) = 'INTERVAL' then 1 else 2 end) end;
create macro __pg.plus_in_zone(a, b) as invoke(lambda a_, b_: case when typeof([a_]) is null or typeof([b_]) is null then null else
    struct_extract(row(
        case when typeof(a_) = 'TIMESTAMP WITH TIME ZONE' and typeof(b_) = 'INTERVAL'
                then __pg.added_in_zone(__pg.as_instant(a_), __pg.as_interval(b_), current_setting('TimeZone'))
            when typeof(b_) = 'TIMESTAMP WITH TIME ZONE' and typeof(a_) = 'INTERVAL'
                then __pg.added_in_zone(__pg.as_instant(b_), __pg.as_interval(a_), current_setting('TimeZone')) end,
        system.main."+"(a_, b_)),
    case when typeof(a_) = 'TIMESTAMP WITH TIME ZONE' and typeof(b_) = 'INTERVAL' then 1
        when typeof(b_) = 'TIMESTAMP WITH TIME ZONE' and typeof(a_) = 'INTERVAL' then 1 else 2 end) end, a, b);
create macro __pg.minus_in_zone
    (a) as system.main."-"(a),
    (a, b) as invoke(lambda a_, b_: case when typeof([a_]) is null or typeof([b_]) is null then null else
        struct_extract(row(
            case when typeof(a_) = 'TIMESTAMP WITH TIME ZONE' and typeof(b_) = 'INTERVAL'
                then __pg.added_in_zone(__pg.as_instant(a_), system.main."-"(__pg.as_interval(b_)), current_setting('TimeZone')) end,
            case when typeof(a_) = 'TIMESTAMP WITH TIME ZONE' and starts_with(typeof(b_), 'TIMESTAMP') or
                    typeof(b_) = 'TIMESTAMP WITH TIME ZONE' and starts_with(typeof(a_), 'TIMESTAMP')
                then system.main."-"(timezone('UTC', __pg.as_instant(a_)), timezone('UTC', __pg.as_instant(b_))) end,
            system.main."-"(a_, b_)),
        case when typeof(a_) = 'TIMESTAMP WITH TIME ZONE' and typeof(b_) = 'INTERVAL' then 1
            when typeof(a_) = 'TIMESTAMP WITH TIME ZONE' and starts_with(typeof(b_), 'TIMESTAMP') then 2
            when typeof(b_) = 'TIMESTAMP WITH TIME ZONE' and starts_with(typeof(a_), 'TIMESTAMP') then 2 else 3 end) end, a, b);
-- A value whose type the binder knows only here, or a NULL of the type.
create macro __pg.as_instant(a) as case when typeof([a]) is null then null else cast_to_type(
    struct_extract(row(a, null::timestamptz), case when starts_with(typeof(a), 'TIMESTAMP') then 1 else 2 end), null::timestamptz) end;
create macro __pg.as_interval(a) as case when typeof([a]) is null then null else
    struct_extract(row(a, null::interval), case when typeof(a) = 'INTERVAL' then 1 else 2 end) end;
-- Months, then days, are added to the local time; hours to the instant.
create macro __pg.added_in_zone(x, i, z) as
    case when not isfinite(x) then x else make_timestamptz(system.main."+"(
        epoch_us(__pg.moved_days(__pg.moved_months(x, i, z), datepart('day', i), z)), __pg.micros_of(i))) end;
create macro __pg.moved_months(x, i, z) as
    case when datepart('year', i) <> 0 or datepart('month', i) <> 0
        then timezone(z, system.main."+"(timezone(z, x),
            to_months(system.main."+"(system.main."*"(datepart('year', i), 12), datepart('month', i))::integer))) else x end;
create macro __pg.moved_days(x, d, z) as invoke(lambda x_, d_:
    case when d_ <> 0 then timezone(z, system.main."+"(timezone(z, x_), to_days(d_::integer))) else x_ end, x, d);
create macro __pg.micros_of(i) as system.main."+"(system.main."+"(system.main."*"(datepart('hour', i), 3600000000),
    system.main."*"(datepart('minute', i), 60000000)), datepart('microsecond', i));
