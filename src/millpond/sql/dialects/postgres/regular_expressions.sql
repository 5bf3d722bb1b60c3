-- Regular expressions as PostgreSQL reads them.
-- internal: similar_to regexp_matches_rows regexp_split_to_table_rows string_to_table_rows

create macro __pg."~"(a, b) as "pg.regexp_like.1"(a, b, '');
create macro __pg."~*"(a, b) as "pg.regexp_like.1"(a, b, 'i');
create macro __pg."!~"(a, b) as not "pg.regexp_like.1"(a, b, '');
create macro __pg."!~*"(a, b) as not "pg.regexp_like.1"(a, b, 'i');
create macro __pg.similar_to
    (a, b) as "pg.similar_to.1"(a, b, '\'),
    (a, b, c) as "pg.similar_to.1"(a, b, c);
create macro __pg.regexp_like
    (a, b) as "pg.regexp_like.1"(a, b, ''),
    (a, b, c) as "pg.regexp_like.1"(a, b, c);
create macro __pg.regexp_match
    (a, b) as "pg.regexp_match.1"(a, b, ''),
    (a, b, c) as "pg.regexp_match.1"(a, b, c);
create macro __pg.regexp_replace
    (a, b, c) as "pg.regexp_replace.1"(a, b, c, 1, 1, ''),
    (a varchar, b varchar, c varchar, d varchar) as
        case when regexp_full_match(d, '[0-9].*') then
            error('invalid regular expression option: "' || d[1] || '"')::varchar
        else "pg.regexp_replace.1"(a, b, c, 1, -1, d) end,
    (a varchar, b varchar, c varchar, d bigint) as "pg.regexp_replace.1"(a, b, c, d, 1, ''),
    (a, b, c, d, e) as
        case when e < 0 then error('invalid value for parameter "n": ' || e)::varchar
        else "pg.regexp_replace.1"(a, b, c, d, e, '') end,
    (a, b, c, d, e, f) as
        case when e < 0 then error('invalid value for parameter "n": ' || e)::varchar
        else "pg.regexp_replace.1"(a, b, c, d, e, f) end;
create macro __pg.regexp_split_to_array
    (a, b) as "pg.regexp_split.1"(a, b, ''),
    (a, b, c) as "pg.regexp_split.1"(a, b, c);
create macro __pg.regexp_count
    (a, b) as "pg.regexp_count.1"(a, b, 1, ''),
    (a, b, c) as "pg.regexp_count.1"(a, b, c, ''),
    (a, b, c, d) as "pg.regexp_count.1"(a, b, c, d);
create macro __pg.regexp_instr
    (a, b) as "pg.regexp_instr.1"(a, b, 1, 1, 0, '', 0),
    (a, b, c) as "pg.regexp_instr.1"(a, b, c, 1, 0, '', 0),
    (a, b, c, d) as "pg.regexp_instr.1"(a, b, c, d, 0, '', 0),
    (a, b, c, d, e) as "pg.regexp_instr.1"(a, b, c, d, e, '', 0),
    (a, b, c, d, e, f) as "pg.regexp_instr.1"(a, b, c, d, e, f, 0),
    (a, b, c, d, e, f, g) as
        "pg.regexp_instr.1"(a, b, c, d, e, f, g);
create macro __pg.regexp_substr
    (a, b) as "pg.regexp_substr.1"(a, b, 1, 1, '', 0),
    (a, b, c) as "pg.regexp_substr.1"(a, b, c, 1, '', 0),
    (a, b, c, d) as "pg.regexp_substr.1"(a, b, c, d, '', 0),
    (a, b, c, d, e) as "pg.regexp_substr.1"(a, b, c, d, e, 0),
    (a, b, c, d, e, f) as "pg.regexp_substr.1"(a, b, c, d, e, f);
-- Set-returning functions: the list of their rows.
create macro __pg.regexp_matches_rows
    (a, b) as "pg.regexp_matches.1"(a, b, ''),
    (a, b, c) as "pg.regexp_matches.1"(a, b, c);
create macro __pg.regexp_split_to_table_rows
    (a, b) as "pg.regexp_split.1"(a, b, ''),
    (a, b, c) as "pg.regexp_split.1"(a, b, c);
create macro __pg.string_to_table_rows
    (a, b) as "pg.string_to_array.1"(a, b, null),
    (a, b, c) as "pg.string_to_array.1"(a, b, c);
