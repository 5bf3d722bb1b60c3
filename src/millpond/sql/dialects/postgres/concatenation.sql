-- `||`, and numbers of elements.

create macro __pg.joined(a, b) as invoke(lambda a_, b_: case
    when typeof([a_]) is null or typeof([b_]) is null then null
    else struct_extract(row(system.main."||"(
        struct_extract(row(a_, case when suffix(typeof(b_), ']') and not suffix(typeof(a_), ']') then [a_] end,
            case when typeof(b_) = 'VARCHAR' and not suffix(typeof(a_), ']') then __pg.text_of(a_) end),
            case when suffix(typeof(b_), ']') and not suffix(typeof(a_), ']') then 2
                when typeof(b_) = 'VARCHAR' and typeof(a_) <> 'VARCHAR' and not suffix(typeof(a_), ']') then 3 else 1 end),
        struct_extract(row(b_, case when suffix(typeof(a_), ']') and not suffix(typeof(b_), ']') then [b_] end,
            case when typeof(a_) = 'VARCHAR' and not suffix(typeof(b_), ']') then __pg.text_of(b_) end),
            case when suffix(typeof(a_), ']') and not suffix(typeof(b_), ']') then 2
                when typeof(a_) = 'VARCHAR' and typeof(b_) <> 'VARCHAR' and not suffix(typeof(b_), ']') then 3 else 1 end)),
        case when typeof(a_) = 'JSON' and typeof(b_) = 'JSON' then cast("pg.jsonb_concat.1"(cast(a_ as varchar), cast(b_ as varchar)) as json) end),
        case when typeof(a_) = 'JSON' and typeof(b_) = 'JSON' then 2 else 1 end)
    end, a, b);

create macro __pg.element(a, i) as case when suffix(typeof(a), ']') and cast(i as bigint) < 1 then null else i end;

create macro __pg.slice_start(a, i) as case when suffix(typeof(a), ']') and cast(i as bigint) < 1 then 1 else i end;

create macro __pg.slice_end(a, i) as case when suffix(typeof(a), ']') and cast(i as bigint) < 0 then 0 else i end;
