-- Sums and means of PostgreSQL's types.  `w` has the type of the values; only its type is read.
-- The months, days and microseconds of an interval are summed as the digits of one number: 7 digits, 11, and 20;
-- more months are an error.
-- internal: is_float interval_number lowest interval_of_parts interval_of summed sum_of avg_of pop_of

create macro __pg.is_float(w) as typeof(w) in ('DOUBLE', 'FLOAT');
create macro __pg.interval_number(i) as
    (datepart('year', i) * 12 + datepart('month', i))::hugeint * 10000000000000000000000000000000::hugeint
    + datepart('day', i)::hugeint * 100000000000000000000::hugeint
    + (datepart('hour', i) * 3600000000 + datepart('minute', i) * 60000000 + datepart('microsecond', i))::hugeint;
create macro __pg.lowest(n, size) as ((n + size // 2) % size + size) % size - size // 2;
create macro __pg.interval_of_parts(rest, us) as
    to_months(((rest - __pg.lowest(rest, 100000000000::hugeint)) // 100000000000::hugeint)::integer)
    + to_days(__pg.lowest(rest, 100000000000::hugeint)::integer) + to_microseconds(us::bigint);
create macro __pg.interval_of(n) as __pg.interval_of_parts(
    (n - __pg.lowest(n, 100000000000000000000::hugeint)) // 100000000000000000000::hugeint,
    __pg.lowest(n, 100000000000000000000::hugeint));
create macro __pg.summed(x) as case when typeof([x]) is null then null else struct_extract(row(x,
        case when typeof(x) = 'INTERVAL' then __pg.interval_number(
            struct_extract(row(null::interval, x), case when typeof(x) = 'INTERVAL' then 2 else 1 end)) end),
    case when typeof(x) = 'INTERVAL' then 2 else 1 end) end;
create macro __pg.sum_of(a, w) as case when typeof([a]) is null then null else struct_extract(row(
        cast_to_type(a, struct_extract(row(a, null::bigint, null::decimal(38, 0), null::float),
            case typeof(w) when 'INTEGER' then 2 when 'SMALLINT' then 2 when 'TINYINT' then 2
                when 'BIGINT' then 3 when 'HUGEINT' then 3 when 'FLOAT' then 4 else 1 end)),
        case when typeof(w) = 'INTERVAL' then __pg.interval_of(a::hugeint) end),
    case when typeof(w) = 'INTERVAL' then 2 else 1 end) end;
create macro __pg.avg_of(a, n, w) as case when typeof([a]) is null then null else struct_extract(row(
        case when not __pg.is_float(w) and typeof(w) <> 'INTERVAL' then "pg.numeric_divide.1"(a::varchar, n::varchar) end,
        case when __pg.is_float(w) then a::double / n end,
        case when typeof(w) = 'INTERVAL' and n > 0 then __pg.interval_of(a::hugeint) / n::double end),
    case when __pg.is_float(w) then 2 when typeof(w) = 'INTERVAL' then 3 else 1 end) end;
-- The spread of one value is 0 in DuckDB, whatever it is; `n` counts infinities and NaN.
create macro __pg.pop_of(a, n) as case when a is not null and n > 0 then 'nan'::double else a end;
