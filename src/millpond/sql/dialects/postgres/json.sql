-- JSON.  A `json` keeps its text and a `jsonb` is normalised; both are DuckDB's JSON, a text.
-- internal: written_json written_json_lines shows_zone json_text json_row text_array list_contains_all
-- internal: without_key path_of json_array_elements_rows jsonb_array_elements_rows
-- internal: json_array_elements_text_rows jsonb_array_elements_text_rows json_object_keys_rows
-- internal: jsonb_object_keys_rows json_each_rows jsonb_each_rows json_each_text_rows jsonb_each_text_rows
-- internal: jsonb_path_query_rows jsonb_path_query_tz_rows document document_order
-- internal: json_agg_distinct jsonb_agg_distinct

-- What is equal, and what is ordered, for a document; anything else is returned as it is.
create macro __pg.document(a) as invoke(lambda a_: case when typeof([a_]) is null then null else
    struct_extract(row(a_, case when typeof(a_) = 'JSON' then "pg.jsonb_value.1"(a_::varchar)::json end),
        case when typeof(a_) = 'JSON' then 2 else 1 end) end, a);
create macro __pg.document_order(a) as invoke(lambda a_: case when typeof([a_]) is null then null else
    struct_extract(row(a_, case when typeof(a_) = 'JSON' then "pg.jsonb_order.1"(a_::varchar) end),
        case when typeof(a_) = 'JSON' then 2 else 1 end) end, a);

-- The JSON of any value; NULL is null.  Before an array or a record in an aggregate stands a line break.
create macro __pg.written_json(a) as
    case when __pg.shows_zone(a) then "pg.to_json.2"(to_json(a)::varchar, typeof(a), current_setting('TimeZone'))
        else "pg.to_json.1"(to_json(a)::varchar, typeof(a)) end;
create macro __pg.written_json_lines(a) as
    case when __pg.shows_zone(a) then "pg.to_json_lines.2"(to_json(a)::varchar, typeof(a), current_setting('TimeZone'))
        else "pg.to_json_lines.1"(to_json(a)::varchar, typeof(a)) end;
-- Has a value instants whose texts depend on the time zone of the session?
create macro __pg.shows_zone(a) as
    current_setting('TimeZone') <> 'UTC' and contains(typeof(a), 'TIMESTAMP WITH TIME ZONE');
create macro __pg.json_text(a) as
    case when a is null then 'null' when typeof(a) = 'JSON' then a::varchar
        else __pg.written_json(a) end;
create macro __pg.json_row(a) as
    case when a is null then 'null' when typeof(a) = 'JSON' then a::varchar
        when suffix(typeof(a), ']') or starts_with(typeof(a), 'STRUCT') or starts_with(typeof(a), 'TUPLE')
            then chr(10) || ' ' || __pg.written_json(a)
        else __pg.written_json(a) end;
create macro __pg.to_json(a) as (case when a is not null then __pg.json_text(a) end)::json;
create macro __pg.to_jsonb(a) as (case when a is not null then "pg.jsonb.1"(__pg.json_text(a)) end)::json;
create macro __pg.row_to_json(a, b := false) as
    (case when a is null or b is null then null when b then __pg.written_json_lines(a)
        else __pg.json_text(a) end)::json;
create macro __pg.array_to_json(a, b := false) as
    (case when a is null or b is null then null when b then __pg.written_json_lines(a)
        else __pg.json_text(a) end)::json;
create macro __pg.json_build_array(a) as "pg.json_array.1"(a)::json;
create macro __pg.jsonb_build_array(a) as "pg.jsonb.1"("pg.json_array.1"(a))::json;
create macro __pg.json_build_object(a) as "pg.json_object.1"(a)::json;
create macro __pg.jsonb_build_object(a) as "pg.jsonb.1"("pg.json_object.1"(a))::json;
create macro __pg.json_object
    (a) as "pg.json_from_texts.1"(a)::json,
    (a, b) as "pg.json_from_two.1"(a, b)::json;
create macro __pg.jsonb_object
    (a) as "pg.jsonb.1"("pg.json_from_texts.1"(a))::json,
    (a, b) as "pg.jsonb.1"("pg.json_from_two.1"(a, b))::json;
create macro __pg.json_agg(a) as "pg.json_agg.1"(a)::json;
create macro __pg.json_agg_distinct(a) as
    "pg.json_agg.1"(list_transform(a, lambda x: __pg.json_row(x)))::json;
create macro __pg.jsonb_agg_distinct(a) as
    "pg.jsonb.1"("pg.json_agg.1"(list_transform(a, lambda x: __pg.json_row(x))))::json;
create macro __pg.jsonb_agg(a) as "pg.jsonb.1"("pg.json_agg.1"(a))::json;
create macro __pg.json_object_agg(a, b) as "pg.json_object_agg.1"(a, b)::json;
create macro __pg.jsonb_object_agg(a, b) as "pg.jsonb.1"("pg.json_object_agg.1"(a, b))::json;

create macro __pg."->"
    (a varchar, b bigint) as "pg.json_element.1"(a, b)::json,
    (a varchar, b varchar) as "pg.json_field.1"(a, b)::json;
create macro __pg."->>"
    (a varchar, b bigint) as "pg.json_as_text.1"("pg.json_element.1"(a, b)),
    (a varchar, b varchar) as "pg.json_as_text.1"("pg.json_field.1"(a, b));
create macro __pg."#>"
    (a varchar, b varchar[]) as "pg.json_path.1"(a, b)::json,
    (a varchar, b varchar) as "pg.json_path.1"(a, __pg.text_array(b))::json;
create macro __pg."#>>"
    (a varchar, b varchar[]) as "pg.json_as_text.1"("pg.json_path.1"(a, b)),
    (a varchar, b varchar) as "pg.json_as_text.1"("pg.json_path.1"(a, __pg.text_array(b)));
create macro __pg."#-"
    (a varchar, b varchar[]) as "pg.jsonb_delete_path.2"(a, b)::json,
    (a varchar, b varchar) as "pg.jsonb_delete_path.2"(a, __pg.text_array(b))::json;
create macro __pg.text_array(a) as "pg.text_array.1"(a);
create macro __pg."?"(a, b) as "pg.jsonb_exists.1"(a, [b], true);
create macro __pg."?|"(a, b) as "pg.jsonb_exists.1"(a, b, false);
create macro __pg."?&"(a, b) as "pg.jsonb_exists.1"(a, b, true);
-- Lists have these operators, too.
create macro __pg."@>"(a varchar, b varchar) as "pg.jsonb_contains.1"(a, b), (a, b) as __pg.list_contains_all(a, b);
create macro __pg."<@"(a varchar, b varchar) as "pg.jsonb_contains.1"(b, a), (a, b) as __pg.list_contains_all(b, a);
-- No array contains a NULL.
create macro __pg.list_contains_all(a, b) as
    case when a is not null and b is not null then system.main."@>"(a, b) and len(b) = system.main.list_count(b) end;
create macro __pg.jsonb_contains(a, b) as "pg.jsonb_contains.1"(a, b);
create macro __pg.jsonb_concat(a, b) as "pg.jsonb_concat.1"(a, b)::json;
create macro __pg.jsonb_delete
    (a varchar, b bigint) as "pg.jsonb_delete_at.1"(a, b)::json,
    (a varchar, b varchar) as "pg.jsonb_delete_key.1"(a, [b])::json,
    (a varchar, b varchar[]) as "pg.jsonb_delete_key.1"(a, b)::json;
-- A column without a key: whether the left side is a jsonb is known only here.
create macro __pg.without_key(a, b) as case when typeof([a]) is null then null
    when typeof(a) = 'JSON' then "pg.jsonb_delete_key.1"(a::varchar, [b])::json
    else error('operator - does not exist between ' || lower(typeof(a)) || ' and a text')::json end;
create macro __pg."@?"(a, b) as "pg.jsonb_path_exists.1"(a, b, '{}', true);
create macro __pg."@@"(a, b) as "pg.jsonb_path_match.1"(a, b, '{}', true);

create macro __pg.json_extract_path(a, b) as "pg.json_path.1"(a, b)::json;
create macro __pg.jsonb_extract_path(a, b) as "pg.json_path.1"(a, b)::json;
create macro __pg.json_extract_path_text(a, b) as "pg.json_as_text.1"("pg.json_path.1"(a, b));
create macro __pg.jsonb_extract_path_text(a, b) as "pg.json_as_text.1"("pg.json_path.1"(a, b));
create macro __pg.json_typeof(a) as "pg.json_typeof.1"(a);
create macro __pg.jsonb_typeof(a) as "pg.json_typeof.1"(a);
create macro __pg.json_array_length(a) as "pg.json_array_length.1"(a);
create macro __pg.jsonb_array_length(a) as "pg.json_array_length.1"(a);
create macro __pg.json_strip_nulls(a) as "pg.json_strip_nulls.1"(a)::json;
create macro __pg.jsonb_strip_nulls(a) as "pg.jsonb_strip_nulls.1"(a)::json;
create macro __pg.jsonb_pretty(a) as "pg.jsonb_pretty.1"(a);
create macro __pg.jsonb_set(jsonb_in, path, replacement, create_if_missing := true) as
    "pg.jsonb_set.1"(jsonb_in, __pg.path_of(path), replacement, create_if_missing)::json;
create macro __pg.jsonb_insert(jsonb_in, path, replacement, insert_after := false) as
    "pg.jsonb_insert.1"(jsonb_in, __pg.path_of(path), replacement, insert_after)::json;
create macro __pg.jsonb_set_lax(jsonb_in, path, replacement, create_if_missing := true,
    null_value_treatment := 'use_json_null') as
    case when jsonb_in is null or path is null or create_if_missing is null then null
        when replacement is not null then "pg.jsonb_set.1"(jsonb_in, __pg.path_of(path), replacement, create_if_missing)
        when null_value_treatment = 'use_json_null'
            then "pg.jsonb_set.1"(jsonb_in, __pg.path_of(path), 'null', create_if_missing)
        when null_value_treatment = 'delete_key' then "pg.jsonb_delete_path.2"(jsonb_in, __pg.path_of(path))
        when null_value_treatment = 'return_target' then jsonb_in
        when null_value_treatment = 'raise_exception' then error('JSON value must not be null')::varchar
        else error('null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"')::varchar
    end::json;
-- A path may be an array or its text, '{a,b}'.
create macro __pg.path_of(a) as
    case when suffix(typeof(a), ']') then "pg.json_texts.1"(to_json(a)::varchar) else "pg.text_array.1"(a::varchar) end;

create macro __pg.json_array_elements_rows(a) as "pg.json_elements.1"(a)::json[];
create macro __pg.jsonb_array_elements_rows(a) as "pg.json_elements.1"(a)::json[];
create macro __pg.json_array_elements_text_rows(a) as "pg.json_elements_text.1"(a);
create macro __pg.jsonb_array_elements_text_rows(a) as "pg.json_elements_text.1"(a);
create macro __pg.json_object_keys_rows(a) as
    list_transform("pg.json_pairs.1"(a, false, true), lambda p: p[1]);
create macro __pg.jsonb_object_keys_rows(a) as
    list_transform("pg.json_pairs.1"(a, false, true), lambda p: p[1]);
create macro __pg.json_each_rows(a) as
    list_transform("pg.json_pairs.1"(a, false, false), lambda p: struct_pack(key := p[1], value := p[2]::json));
create macro __pg.jsonb_each_rows(a) as
    list_transform("pg.json_pairs.1"(a, false, false), lambda p: struct_pack(key := p[1], value := p[2]::json));
create macro __pg.json_each_text_rows(a) as
    list_transform("pg.json_pairs.1"(a, true, false), lambda p: struct_pack(key := p[1], value := p[2]));
create macro __pg.jsonb_each_text_rows(a) as
    list_transform("pg.json_pairs.1"(a, true, false), lambda p: struct_pack(key := p[1], value := p[2]));

create macro __pg.jsonb_path_exists(target, path, vars := '{}', silent := false) as
    "pg.jsonb_path_exists.1"(target, path, vars, silent);
create macro __pg.jsonb_path_match(target, path, vars := '{}', silent := false) as
    "pg.jsonb_path_match.1"(target, path, vars, silent);
create macro __pg.jsonb_path_query_array(target, path, vars := '{}', silent := false) as
    "pg.jsonb_path_array.1"(target, path, vars, silent)::json;
create macro __pg.jsonb_path_query_first(target, path, vars := '{}', silent := false) as
    ("pg.jsonb_path_query.1"(target, path, vars, silent)[1])::json;
create macro __pg.jsonb_path_query_rows(target, path, vars := '{}', silent := false) as
    "pg.jsonb_path_query.1"(target, path, vars, silent)::json[];
create macro __pg.jsonb_path_exists_tz(target, path, vars := '{}', silent := false) as
    "pg.jsonb_path_exists.1"(target, path, vars, silent);
create macro __pg.jsonb_path_match_tz(target, path, vars := '{}', silent := false) as
    "pg.jsonb_path_match.1"(target, path, vars, silent);
create macro __pg.jsonb_path_query_array_tz(target, path, vars := '{}', silent := false) as
    "pg.jsonb_path_array.1"(target, path, vars, silent)::json;
create macro __pg.jsonb_path_query_first_tz(target, path, vars := '{}', silent := false) as
    ("pg.jsonb_path_query.1"(target, path, vars, silent)[1])::json;
create macro __pg.jsonb_path_query_tz_rows(target, path, vars := '{}', silent := false) as
    "pg.jsonb_path_query.1"(target, path, vars, silent)::json[];
