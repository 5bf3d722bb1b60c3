-- Dates and times from texts, as PostgreSQL reads them.  DuckDB casts ISO texts, which LIKE finds cheaply and a pattern
-- completely; all others, and those that a cast refuses, go to the parser, which knows why.
-- internal: date_in timestamp_in timestamptz_in time_in timetz_in

create macro __pg.date_in
    (x varchar) as coalesce(case when x like '____-__-__' and x > '0001' then try_cast(x as date) end, "pg.date_in.1"(x)),
    (x) as cast(x as date);

create macro __pg.timestamp_in
    (x varchar) as coalesce(
        case when x like '____-__-__ __:__:__' and x > '0001' then try_cast(x as timestamp)
            when x like '____-__-__ __:__:__.______' and right(x, 1) <= '9' and x > '0001' then try_cast(x as timestamp)
            when regexp_full_match(x, '[1-9]\d{3}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-](0\d|1[0-5])(:[0-5]\d)?)?)?') then try_cast(x as timestamp) end,
        "pg.timestamp_in.1"(x)),
    (x) as cast(x as timestamp);

create macro __pg.timestamptz_in
    (x varchar) as coalesce(
        case when x like '____-__-__ __:__:__+0_' and x > '0001' then try_cast(x as timestamptz)
            when x like '____-__-__T__:__:__Z' and x > '0001' then try_cast(x as timestamptz)
            when regexp_full_match(x, '[1-9]\d{3}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-](0\d|1[0-5])(:[0-5]\d)?)?)?') then try_cast(x as timestamptz) end,
        "pg.timestamptz_in.1"(x, current_setting('TimeZone'))),
    (x) as cast(x as timestamptz);

create macro __pg.time_in
    (x varchar) as coalesce(
        case when x like '__:__:__' then try_cast(x as time)
            when regexp_full_match(x, '\d\d:\d\d(:\d\d(\.\d{1,6})?)?') then try_cast(x as time) end,
        "pg.time_in.1"(x)),
    (x) as cast(x as time);

create macro __pg.timetz_in
    (x varchar) as coalesce(
        case when regexp_full_match(x, '\d\d:\d\d:\d\d(\.\d{1,6})?[+-](0\d|1[0-5])(:[0-5]\d)?') then try_cast(x as timetz) end,
        cast("pg.timetz_in.1"(x, current_setting('TimeZone')) as timetz)),
    (x) as cast(x as timetz);
