-- `||`, and numbers of elements.
-- internal: joined beside joined_alike text_part element slice_start slice_end

create macro __pg.joined(a, b) as invoke(lambda a_, b_: case
    when typeof([a_]) is null or typeof([b_]) is null then null
    else struct_extract(row(__pg.joined_alike(__pg.beside(a_, b_), __pg.beside(b_, a_)),
        case when typeof(a_) = 'JSON' and typeof(b_) = 'JSON' then cast("pg.jsonb_concat.1"(cast(a_ as varchar), cast(b_ as varchar)) as json) end),
        case when typeof(a_) = 'JSON' and typeof(b_) = 'JSON' then 2 else 1 end)
    end, a, b);

-- An operand in the type that the other one asks for: an array of one element, or a text.
create macro __pg.beside(x, y) as case when typeof([x]) is null or typeof([y]) is null then null else
    struct_extract(row(x, case when suffix(typeof(y), ']') and not suffix(typeof(x), ']') then [x] end,
        case when typeof(y) = 'VARCHAR' and not suffix(typeof(x), ']') then __pg.text_of(x) end),
        case when suffix(typeof(y), ']') and not suffix(typeof(x), ']') then 2
            when typeof(y) = 'VARCHAR' and typeof(x) <> 'VARCHAR' and not suffix(typeof(x), ']') then 3 else 1 end) end;

-- A NULL is an array without elements, and makes a text NULL.
create macro __pg.joined_alike(a, b) as invoke(lambda c_, d_: case when typeof([c_]) is null or typeof([d_]) is null then null else
    coalesce(case when typeof(c_) <> 'JSON' then system.main."||"(c_, d_) end, case when suffix(typeof(c_), ']') then coalesce(c_, d_) end) end, a, b);

-- A part of a text.  Beside an array PostgreSQL takes a literal in quotes for one, too.
create macro __pg.text_part(x) as
    case when suffix(typeof(x), ']') then error('malformed array literal')::varchar else __pg.text_of(x) end;

create macro __pg.element(a, i) as case when suffix(typeof(a), ']') and cast(i as bigint) < 1 then null else i end;

create macro __pg.slice_start(a, i) as case when suffix(typeof(a), ']') and cast(i as bigint) < 1 then 1 else i end;

create macro __pg.slice_end(a, i) as case when suffix(typeof(a), ']') and cast(i as bigint) < 0 then 0 else i end;
