-- Casts: from text as PostgreSQL reads a value, to text as it writes one.
-- internal: text_of name fitted padded timestamp_of bytea_of exact as_numeric

create macro __pg.int2
    (x varchar) as case when regexp_full_match(x, '\s*[+-]?\d+\s*') then cast(x as smallint) when x is not null then error('invalid input syntax for type smallint: "' || x || '"') end,
    (x) as cast(x as smallint);

create macro __pg.int4
    (x varchar) as case when regexp_full_match(x, '\s*[+-]?\d+\s*') then cast(x as integer) when x is not null then error('invalid input syntax for type integer: "' || x || '"') end,
    (x) as cast(x as integer);

create macro __pg.int8
    (x varchar) as case when regexp_full_match(x, '\s*[+-]?\d+\s*') then cast(x as bigint) when x is not null then error('invalid input syntax for type bigint: "' || x || '"') end,
    (x) as cast(x as bigint);

create macro __pg.bool
    (x varchar) as case
        when x is null then cast(null as boolean)
        when regexp_full_match(lower(trim(x, e' \t\n\r')), 't|tr|tru|true|y|ye|yes|on|1') then true
        when regexp_full_match(lower(trim(x, e' \t\n\r')), 'f|fa|fal|fals|false|n|no|of|off|0') then false
        else error('invalid input syntax for type boolean: "' || x || '"')
    end,
    (x) as cast(x as boolean);

create macro __pg.numeric
    (x tinyint) as cast(x as decimal(3, 0)),
    (x smallint) as cast(x as decimal(5, 0)),
    (x integer) as cast(x as decimal(10, 0)),
    (x bigint) as cast(x as decimal(19, 0)),
    (x hugeint) as cast(x as decimal(38, 0)),
    (x varchar) as case
        when regexp_matches(x, '\.\d{16}\d*[1-9]') then error('a numeric from a text has at most 16 digits after the point')
        else cast(x as decimal(38, 16))
    end,
    (x) as x;

-- A float has 15 digits as a numeric, a real 6.
create macro __pg.exact(x) as invoke(lambda x_: case when typeof([x_]) is null then null else
    struct_extract(row(x_,
            case when typeof(x_) = 'DOUBLE' then format('{:.15g}', x_) end,
            case when typeof(x_) = 'FLOAT' then format('{:.6g}', x_) end),
        case typeof(x_) when 'DOUBLE' then 2 when 'FLOAT' then 3 else 1 end) end, x);

create macro __pg.as_numeric
    (x tinyint) as cast(x as decimal(3, 0)),
    (x smallint) as cast(x as decimal(5, 0)),
    (x integer) as cast(x as decimal(10, 0)),
    (x bigint) as cast(x as decimal(19, 0)),
    (x hugeint) as cast(x as decimal(38, 0)),
    (x varchar) as __pg.numeric(x),
    (x) as invoke(lambda x_: case when typeof([x_]) is null then null else
        struct_extract(row(x_,
                case when typeof(x_) = 'DOUBLE' then cast(format('{:.15g}', x_) as decimal(38, 16)) end,
                case when typeof(x_) = 'FLOAT' then cast(format('{:.6g}', x_) as decimal(38, 16)) end),
            case typeof(x_) when 'DOUBLE' then 2 when 'FLOAT' then 3 else 1 end) end, x);

create macro __pg.text_of(x) as case
    when typeof(x) in ('DOUBLE', 'FLOAT', 'INTERVAL', 'BLOB') then "pg.text.1"(cast(x as varchar), typeof(x))
    when typeof(x) = 'TIMESTAMP WITH TIME ZONE' and current_setting('TimeZone') <> 'UTC'
        then "pg.timestamptz_seconds.1"(cast(x as varchar), current_setting('TimeZone'))
    when suffix(typeof(x), ']') then __pg.composite_text(x)
    else cast(x as varchar)
end;

create macro __pg.varchar(x, n) as left(__pg.text_of(x), n);

create macro __pg.fitted(x, n) as case when length(__pg.text_of(x)) <= n then __pg.text_of(x)
    when rtrim(substr(__pg.text_of(x), n + 1), ' ') = '' then left(__pg.text_of(x), n)
    when x is not null then error('value too long for type character varying(' || n || ')') end;

create macro __pg.padded(x, n) as case when length(rtrim(__pg.text_of(x), ' ')) <= n then rtrim(__pg.text_of(x), ' ')
    when x is not null then error('value too long for type character(' || n || ')') end;

create macro __pg.timestamp_of(x, p) as case when isfinite(__pg.timestamp_in(x))
    then make_timestamp(cast(round(epoch_us(__pg.timestamp_in(x)), p - 6) as bigint)) else __pg.timestamp_in(x) end;

create macro __pg.bytea_of
    (x varchar) as "pg.bytea_in.1"(x),
    (x) as cast(x as blob);

create macro __pg.name(x) as left(__pg.text_of(x), 63);

create macro __pg.bpchar(x, n) as rtrim(left(__pg.text_of(x), n), ' ');
