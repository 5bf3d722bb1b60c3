-- The text of a value as PostgreSQL writes it: the output functions of types.  A boolean is `t`, cast it is `true`.
-- One body for all types, so that macros without types can call it: the cast to text and back only satisfies the binder.
-- internal: output composite_text

create macro __pg.output(a) as
    case typeof(a)
        when 'BOOLEAN' then case a::varchar when 'true' then 't' when 'false' then 'f' end
        when 'DOUBLE' then "pg.float8_out.1"(a::varchar::double)
        when 'FLOAT' then "pg.float4_out.1"(a::varchar::double)
        when 'BLOB' then '\x' || lower(hex(a::varchar::blob))
        when 'DATE' then "pg.date_out.1"(a::varchar::date)
        when 'TIMESTAMP' then "pg.timestamp_out.1"(a::varchar::timestamp)
        when 'TIMESTAMP WITH TIME ZONE' then
            case when __pg.shows_zone(a) then "pg.timestamptz_seconds.1"(a::varchar, current_setting('TimeZone')) else a::varchar end
        when 'INTERVAL' then "pg.interval_out.1"(a::varchar::interval)
        else case when suffix(typeof(a), ']') or starts_with(typeof(a), 'STRUCT') or starts_with(typeof(a), 'TUPLE')
                then __pg.composite_text(a)
            else a::varchar end
    end;

create macro __pg.composite_text(a) as
    case when __pg.shows_zone(a) then "pg.composite_out.2"(to_json(a)::varchar, typeof(a), current_setting('TimeZone'))
        else "pg.composite_out.1"(to_json(a)::varchar, typeof(a)) end;
