-- Literals in quotes beside something with a type.  `t` is the literal, `m` a NULL of the numeric with its digits,
-- `whole` whether it is an integer, and `o` what stands beside it: only its type is read.
-- internal: number_beside added_to factor_of array_beside json_beside value_beside

create macro __pg.number_beside(t, m, whole, o) as case
    when typeof([o]) is null then null
    when not whole and typeof(o) in ('SMALLINT', 'INTEGER', 'BIGINT', 'TINYINT') then error(
        'invalid input syntax for type ' || case typeof(o) when 'SMALLINT' then 'smallint' when 'BIGINT' then 'bigint' else 'integer' end
        || ': "' || t || '"')
    when typeof(m) = 'INTEGER' and (typeof(o) like 'DECIMAL%' or typeof(o) = 'HUGEINT')
        then error('invalid input syntax for type numeric: "' || t || '"')
    else cast_to_type(t, struct_extract(row(o, m), case when typeof(o) like 'DECIMAL%' or typeof(o) = 'HUGEINT' then 2 else 1 end))
end;
create macro __pg.added_to(t, m, whole, o) as case when typeof([o]) is null then null

    else __pg.number_beside(t, m, whole, struct_extract(row(o, null::interval), case when typeof(o) like 'TIME%' then 2 else 1 end)) end;
create macro __pg.factor_of(t, m, whole, o) as case when typeof([o]) is null then null
    else __pg.number_beside(t, m, whole, struct_extract(row(o, null::double), case when typeof(o) = 'INTERVAL' then 2 else 1 end)) end;
create macro __pg.array_beside(t, o) as case when typeof([o]) is null then null else
    cast_to_type(struct_extract(row(t, case when suffix(typeof(o), ']') then __pg.text_array_in(t) end, case when typeof(o) = 'JSON' then __pg.jsonb_in(t) end),
        case when suffix(typeof(o), ']') then 2 when typeof(o) = 'JSON' then 3 else 1 end), o) end;
create macro __pg.json_beside(t, o) as case when typeof([o]) is null then null else
    cast_to_type(struct_extract(row(t, case when typeof(o) = 'JSON' then __pg.jsonb_in(t) end), case when typeof(o) = 'JSON' then 2 else 1 end), o) end;
create macro __pg.value_beside(t, o) as case when typeof([o]) is null then null else cast_to_type(
    struct_extract(row(t,
            case when typeof(o) = 'DATE' then __pg.date_in(t) end,
            case when typeof(o) = 'TIMESTAMP' then __pg.timestamp_in(t) end,
            case when typeof(o) = 'TIMESTAMP WITH TIME ZONE' then __pg.timestamptz_in(t) end,
            case when typeof(o) = 'TIME' then __pg.time_in(t) end,
            case when typeof(o) = 'TIME WITH TIME ZONE' then __pg.timetz_in(t) end,
            case when typeof(o) = 'BLOB' then __pg.bytea_in(t) end),
        case typeof(o) when 'DATE' then 2 when 'TIMESTAMP' then 3 when 'TIMESTAMP WITH TIME ZONE' then 4
            when 'TIME' then 5 when 'TIME WITH TIME ZONE' then 6
            when 'BLOB' then 7 else 1 end), o) end;
