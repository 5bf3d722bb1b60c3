-- Sums and means of PostgreSQL's types.  `w` has the type of the values; only its type is read.

create macro __pg.is_float(w) as typeof(w) in ('DOUBLE', 'FLOAT');
create macro __pg.sum_of(a, w) as case when typeof([a]) is null then null else cast_to_type(
    a, struct_extract(row(a, null::bigint, null::decimal(38, 0), null::float),
        case typeof(w) when 'INTEGER' then 2 when 'SMALLINT' then 2 when 'TINYINT' then 2
            when 'BIGINT' then 3 when 'HUGEINT' then 3 when 'FLOAT' then 4 else 1 end)) end;
create macro __pg.avg_of(a, n, w) as case when typeof([a]) is null then null else struct_extract(row(
        case when not __pg.is_float(w) then "pg.numeric_divide.1"(a::varchar, n::varchar) end,
        case when __pg.is_float(w) then a::double / n end),
    1 + __pg.is_float(w)::integer) end;
