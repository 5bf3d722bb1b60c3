-- Arrays: lists of DuckDB.  An array of two dimensions is a list of lists; the first element has number 1.
-- internal: array_shape generate_subscripts_rows

create macro __pg.array_append(a, b) as system.main.list_append(coalesce(a, []), b);
create macro __pg.array_prepend(a, b) as system.main.list_prepend(a, coalesce(b, []));
create macro __pg.array_cat(a, b) as
    case when a is null then b when b is null then a else system.main.list_concat(a, b) end;
create macro __pg.array_shape(a) as "pg.array_shape.1"(to_json(a)::varchar, typeof(a));
create macro __pg.array_length(a, b) as
    case when b = 1 then nullif(len(a), 0)::integer else (__pg.array_shape(a)[case when b > 0 then b end])::integer end;
create macro __pg.array_upper(a, b) as
    case when b = 1 then nullif(len(a), 0)::integer else (__pg.array_shape(a)[case when b > 0 then b end])::integer end;
create macro __pg.array_lower(a, b) as
    case when b > 0 and __pg.array_shape(a)[case when b > 0 then b end] is not null then 1 end;
create macro __pg.array_ndims(a) as nullif(len(__pg.array_shape(a)), 0)::integer;
create macro __pg.array_dims(a) as
    nullif(system.main.array_to_string(list_transform(__pg.array_shape(a), lambda n: '[1:' || n || ']'), ''), '');
create macro __pg.cardinality(a) as
    case when a is null then null when len(a) = 0 then 0 else list_product(__pg.array_shape(a)) end::integer;
create macro __pg.array_position
    (a, b) as list_filter(range(1, len(a) + 1), lambda n: a[n] is not distinct from b)[1]::integer,
    (a, b, c) as
        case when c is null and a is not null then error('initial position must not be null')::integer
            else list_filter(range(1, len(a) + 1), lambda n: n >= c and a[n] is not distinct from b)[1]::integer end;
create macro __pg.array_positions(a, b) as
    list_filter(range(1, len(a) + 1), lambda n: a[n] is not distinct from b)::integer[];
create macro __pg.array_remove(a, b) as list_filter(a, lambda x: x is distinct from b);
create macro __pg.array_replace(a, b, c) as
    list_transform(a, lambda x: case when x is not distinct from b then c else x end);
create macro __pg.array_to_string
    (a, b) as
        case when a is not null and b is not null then "pg.array_to_string.1"(to_json(a)::varchar, typeof(a), b, null) end,
    (a, b, c) as
        case when a is not null and b is not null then "pg.array_to_string.1"(to_json(a)::varchar, typeof(a), b, c) end;
create macro __pg.array_fill
    (a, b) as
        case when b is null then error('dimension array or low bound array cannot be null')
            when len(b) > 1 then error('array_fill of several dimensions is not supported; nest two calls')
            else list_transform(range(coalesce(b[1], 0)), lambda n: a) end,
    (a, b, c) as
        case when len(b) <> len(c) then error('wrong number of array subscripts')
            when c[1] <> 1 then error('arrays start at 1: another low bound is not supported')
            when len(b) > 1 then error('array_fill of several dimensions is not supported; nest two calls')
            else list_transform(range(coalesce(b[1], 0)), lambda n: a) end;
create macro __pg.trim_array(a, b) as
    case when b < 0 or b > len(a) then error('number of elements to trim must be between 0 and ' || len(a))
        else a[:len(a) - b] end;
create macro __pg.generate_subscripts_rows
    (a, b) as range(1, coalesce(__pg.array_shape(a)[case when b > 0 then b end], 0) + 1)::integer[],
    (a, b, c) as
        case when c is null then null when c then list_reverse(range(1, coalesce(__pg.array_shape(a)[case when b > 0 then b end], 0) + 1))::integer[]
            else range(1, coalesce(__pg.array_shape(a)[case when b > 0 then b end], 0) + 1)::integer[] end;
