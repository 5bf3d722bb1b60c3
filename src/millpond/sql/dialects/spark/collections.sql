-- Arrays, maps and structs: `a[0]` is the first element, a place that is not there is an error.

create macro __spark.is_map(x) as /* inline */ typeof(x) like 'MAP(%';
create macro __spark.place_or_key(x, k, place) as struct_extract(row(
        case when not __spark.is_map(x) then place end, case when __spark.is_map(x) then k end,
        cast_to_type(null, x), cast_to_type(null, k)), 1 + __spark.is_map(x)::integer);
create macro __spark.number_or_null(k) as try_cast(k::varchar as bigint);
create macro __spark."[]"(x, k) as case
    when not __spark.is_map(x) and (__spark.number_or_null(k) < 0 or __spark.number_or_null(k) >= cardinality(x)::bigint)
    then error('the array has no element ' || k::varchar)
    else x[__spark.place_or_key(x, k, __spark.number_or_null(k) + 1)] end;
create macro __spark.element_at(x, k) as case
    when not __spark.is_map(x) and (__spark.number_or_null(k) = 0 or abs(__spark.number_or_null(k)) > cardinality(x)::bigint)
    then error('the array has no element ' || k::varchar)
    else x[__spark.place_or_key(x, k, __spark.number_or_null(k))] end;
create macro __spark.try_element_at(x, k) as case
    when not __spark.is_map(x) and __spark.number_or_null(k) = 0 then error('the array has no element 0')
    else x[__spark.place_or_key(x, k, __spark.number_or_null(k))] end;
create macro __spark.get(x, k) as case when k >= 0 then x[k + 1] end;
create macro __spark.size(x) as cardinality(x)::integer;
create macro __spark.cardinality(x) as cardinality(x)::integer;
create macro __spark.array_size(x) as len(x)::integer;
create macro __spark.array_contains(l, x) as case when l is null or x is null then null
    when list_contains(l, x) then true when list_count(l) < len(l) then null else false end;
create macro __spark.array_position(l, x) as case when l is null or x is null then null else coalesce(list_position(l, x), 0)::bigint end;
create macro __spark.array_append(l, x) as case when l is not null then list_append(l, x) end;
create macro __spark.array_prepend(l, x) as case when l is not null then list_prepend(x, l) end;
create macro __spark.array_compact(l) as list_filter(l, lambda e: e is not null);
create macro __spark.array_remove(l, x) as case when x is not null then list_filter(l, lambda e: e is null or e <> x) end;
create macro __spark.array_max(l) as list_max(l);
create macro __spark.array_min(l) as list_min(l);
create macro __spark.array_distinct(l) as list_filter(l, lambda e, i: case when e is null
    then list_count(l[1:i - 1]) = len(l[1:i - 1]) else not list_contains(l[1:i - 1], e) end);
create macro __spark.array_union(a, b) as __spark.array_distinct(case when a is not null and b is not null then a || b end);
create macro __spark.has_element(l, e) as case when e is null then list_count(l) < len(l) else list_contains(l, e) end;
create macro __spark.array_intersect(a, b) as case when b is not null then
    __spark.array_distinct(list_filter(a, lambda e: __spark.has_element(b, e))) end;
create macro __spark.array_except(a, b) as case when b is not null then
    __spark.array_distinct(list_filter(a, lambda e: not __spark.has_element(b, e))) end;
create macro __spark.arrays_overlap(a, b) as case when a is null or b is null then null when list_has_any(a, b) then true
    when len(a) > 0 and len(b) > 0 and (list_count(a) < len(a) or list_count(b) < len(b)) then null else false end;
create macro __spark.array_join
    (l, d) as "spark.join.1"(list_transform(list_filter(l, lambda e: e is not null), lambda e: __spark.cast_string(e)), d),
    (l, d, n) as "spark.join.1"(list_transform(l, lambda e: coalesce(__spark.cast_string(e), n)), d);
create macro __spark.array_repeat(x, n) as list_transform(range(greatest(n, 0)::bigint), lambda i: x);
create macro __spark.array_insert(l, p, x) as case when l is null or p is null then null
    when p = 0 then error('the place in array_insert must not be 0')
    when p > 0 then case when p <= len(l) then l[1:p - 1] || [x] || l[p:]
        else l || list_transform(range((p - 1 - len(l))::bigint), lambda i: cast_to_type(null, x)) || [x] end
    when -p <= len(l) + 1 then l[1:len(l) + p + 1] || [x] || l[len(l) + p + 2:]
    else [x] || list_transform(range((-p - 1 - len(l))::bigint), lambda i: cast_to_type(null, x)) || l end;
create macro __spark.slice(l, p, n) as case when l is null or p is null or n is null then null
    when p = 0 then error('the place in slice must not be 0') when n < 0 then error('the length in slice must not be negative')
    when p > 0 then l[p:p + n - 1]
    when -p > len(l) then l[1:0] else l[len(l) + p + 1:len(l) + p + n] end;
create macro __spark.sort_array
    (l) as list_sort(l, 'ASC', 'NULLS FIRST'),
    (l, up) as case when up is null then null when up then list_sort(l, 'ASC', 'NULLS FIRST') else list_sort(l, 'DESC', 'NULLS LAST') end;
create macro __spark.flatten(l) as case when list_count(l) = len(l) then flatten(l) end;
create macro __spark.sequence
    (a integer, b integer) as (case when a <= b then generate_series(a, b) else generate_series(a, b, -1) end)::integer[],
    (a integer, b integer, s integer) as generate_series(a, b, s)::integer[],
    (a bigint, b bigint) as case when a <= b then generate_series(a, b) else generate_series(a, b, -1) end,
    (a bigint, b bigint, s bigint) as generate_series(a, b, s),
    (a date, b date) as list_transform(generate_series(a::timestamp, b::timestamp, interval 1 day), lambda e: e::date),
    (a date, b date, s interval) as list_transform(generate_series(a::timestamp, b::timestamp, s), lambda e: e::date);
create macro __spark.any_of(l) as case when l is null then null when list_contains(l, true) then true
    when list_count(l) < len(l) then null else false end;
create macro __spark.all_of(l) as case when l is null then null when list_contains(l, false) then false
    when list_count(l) < len(l) then null else true end;

create macro __spark.map_of(k, v) as case when list_count(k) < len(k) then error('a key of a map is NULL')
    when list_unique(k) < len(k) then error('a key occurs twice in a map') else map(k, v) end;
create macro __spark.map_from_arrays(k, v) as case when k is null or v is null then null
    when len(k) <> len(v) then error('the keys and the values of a map are not equally many') else __spark.map_of(k, v) end;
create macro __spark.map_from_entries(l) as case when l is not null then __spark.map_of(list_transform(l, lambda e: struct_extract_at(e, 1)), list_transform(l, lambda e: struct_extract_at(e, 2))) end;
create macro __spark.map_keys(m) as map_keys(m);
create macro __spark.map_values(m) as map_values(m);
create macro __spark.map_entries(m) as map_entries(m);
create macro __spark.map_contains_key(m, k) as list_contains(map_keys(m), k);
create macro __spark.typeof(x) as /* inline */ "spark.type_name.1"(typeof(x));

-- JSON in texts.
create macro __spark.get_json_object(j, p) as "spark.get_json_object.2"(j, p);
create macro __spark.json_field(j, n) as "spark.json_field.1"(j, n);
create macro __spark.json_array_length(j) as "spark.json_array_length.1"(j);
create macro __spark.json_object_keys(j) as "spark.json_object_keys.1"(j);
create macro __spark.to_json_with(x, d, t) as "spark.to_json.1"(to_json(x)::varchar, typeof(x), d, t);
create macro __spark.compared(a, b) as /* inline */ "spark.compared.1"(to_json(a)::varchar, typeof(a), to_json(b)::varchar, typeof(b));
create macro __spark.to_csv_with(x, b, d, t) as "spark.to_csv.1"(to_json(x)::varchar, typeof(x), b, d, t);
create macro __spark.vector_inner_product(a, b) as "spark.vector_inner_product.1"(a, b);
create macro __spark.vector_l2_distance(a, b) as "spark.vector_l2_distance.1"(a, b);
create macro __spark.vector_cosine_similarity(a, b) as "spark.vector_cosine_similarity.1"(a, b);
create macro __spark.vector_norm
    (v) as "spark.vector_norm.1"(v, 2::double),
    (v, d) as "spark.vector_norm.1"(v, d::double);
create macro __spark.vector_normalize
    (v) as "spark.vector_normalize.1"(v, 2::double),
    (v, d) as "spark.vector_normalize.1"(v, d::double);
