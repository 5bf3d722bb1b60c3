-- Values from texts, as PostgreSQL's input functions read them.
-- internal: bytea_in text_array_in

create macro __pg.jsonb_in(a) as "pg.jsonb.1"(cast(a as varchar))::json;
create macro __pg.json_in(a) as "pg.json_valid.1"(a)::json;
create macro __pg.bytea_in(a) as "pg.bytea_in.1"(a);
create macro __pg.text_array_in(a) as "pg.text_array.1"(a);
