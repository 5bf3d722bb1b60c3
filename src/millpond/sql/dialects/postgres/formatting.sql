-- Formatting: to_char and its inverses.

create macro __pg.to_char
    (a timestamp, b varchar) as "pg.to_char_timestamp.1"(a, b),
    (a timestamptz, b varchar) as
        case when current_setting('TimeZone') = 'UTC'
            then "pg.to_char_timestamptz.1"(a::timestamp, b, 'UTC',
                case when isfinite(a) then epoch(a::timestamp - timezone('UTC', a))::bigint else 0 end)
            else "pg.to_char_timestamptz.2"(a::timestamp, b, current_setting('TimeZone'), __pg.zone_offset(a)) end,
    (a interval, b varchar) as "pg.to_char_interval.1"(a, b),
    (a integer, b varchar) as "pg.to_char_number.1"(a::varchar, b, 'i'),
    (a bigint, b varchar) as "pg.to_char_number.1"(a::varchar, b, 'i'),
    (a, b varchar) as
        "pg.to_char_number.1"(a::varchar, b, case typeof(a) when 'DOUBLE' then 'f' when 'FLOAT' then 'r' else 'n' end);
create macro __pg.to_date(a, b) as "pg.to_date.1"(a, b);
create macro __pg.to_timestamp
    (a, b) as
        case when current_setting('TimeZone') = 'UTC' then timezone('UTC', "pg.to_timestamp.1"(a, b))
            when regexp_matches(b, 'tz[hm]', 'i') then timezone('UTC', "pg.to_timestamp.1"(a, b))
            else timezone(current_setting('TimeZone'), "pg.to_timestamp.1"(a, b)) end,
    (a) as "pg.to_timestamp_seconds.1"(a);
-- `calls.py` casts the digits to a numeric with as many places as the format has.
create macro __pg.to_number(a, b) as "pg.to_number.1"(a, b);
