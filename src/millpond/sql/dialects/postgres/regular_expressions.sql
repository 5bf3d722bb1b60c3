-- Regular expressions as PostgreSQL reads them.

create macro __pg."~"(a varchar, b varchar) as "pg.regexp_like.1"(a, b, '');
create macro __pg."~*"(a varchar, b varchar) as "pg.regexp_like.1"(a, b, 'i');
create macro __pg."!~"(a varchar, b varchar) as not "pg.regexp_like.1"(a, b, '');
create macro __pg."!~*"(a varchar, b varchar) as not "pg.regexp_like.1"(a, b, 'i');
create macro __pg.similar_to
    (a varchar, b varchar) as "pg.similar_to.1"(a, b, '\'),
    (a varchar, b varchar, c varchar) as "pg.similar_to.1"(a, b, c);
create macro __pg.regexp_like
    (a varchar, b varchar) as "pg.regexp_like.1"(a, b, ''),
    (a varchar, b varchar, c varchar) as "pg.regexp_like.1"(a, b, c);
create macro __pg.regexp_match
    (a varchar, b varchar) as "pg.regexp_match.1"(a, b, ''),
    (a varchar, b varchar, c varchar) as "pg.regexp_match.1"(a, b, c);
create macro __pg.regexp_replace
    (a varchar, b varchar, c varchar) as "pg.regexp_replace.1"(a, b, c, 1, 1, ''),
    (a varchar, b varchar, c varchar, d varchar) as
        case when regexp_full_match(d, '[0-9].*') then
            error('invalid regular expression option: "' || d[1] || '"')::varchar
        else "pg.regexp_replace.1"(a, b, c, 1, -1, d) end,
    (a varchar, b varchar, c varchar, d bigint) as "pg.regexp_replace.1"(a, b, c, d, 1, ''),
    (a varchar, b varchar, c varchar, d bigint, e bigint) as
        case when e < 0 then error('invalid value for parameter "n": ' || e)::varchar
        else "pg.regexp_replace.1"(a, b, c, d, e, '') end,
    (a varchar, b varchar, c varchar, d bigint, e bigint, f varchar) as
        case when e < 0 then error('invalid value for parameter "n": ' || e)::varchar
        else "pg.regexp_replace.1"(a, b, c, d, e, f) end;
create macro __pg.regexp_split_to_array
    (a varchar, b varchar) as "pg.regexp_split.1"(a, b, ''),
    (a varchar, b varchar, c varchar) as "pg.regexp_split.1"(a, b, c);
create macro __pg.regexp_count
    (a varchar, b varchar) as "pg.regexp_count.1"(a, b, 1, ''),
    (a varchar, b varchar, c bigint) as "pg.regexp_count.1"(a, b, c, ''),
    (a varchar, b varchar, c bigint, d varchar) as "pg.regexp_count.1"(a, b, c, d);
create macro __pg.regexp_instr
    (a varchar, b varchar) as "pg.regexp_instr.1"(a, b, 1, 1, 0, '', 0),
    (a varchar, b varchar, c bigint) as "pg.regexp_instr.1"(a, b, c, 1, 0, '', 0),
    (a varchar, b varchar, c bigint, d bigint) as "pg.regexp_instr.1"(a, b, c, d, 0, '', 0),
    (a varchar, b varchar, c bigint, d bigint, e bigint) as "pg.regexp_instr.1"(a, b, c, d, e, '', 0),
    (a varchar, b varchar, c bigint, d bigint, e bigint, f varchar) as "pg.regexp_instr.1"(a, b, c, d, e, f, 0),
    (a varchar, b varchar, c bigint, d bigint, e bigint, f varchar, g bigint) as
        "pg.regexp_instr.1"(a, b, c, d, e, f, g);
create macro __pg.regexp_substr
    (a varchar, b varchar) as "pg.regexp_substr.1"(a, b, 1, 1, '', 0),
    (a varchar, b varchar, c bigint) as "pg.regexp_substr.1"(a, b, c, 1, '', 0),
    (a varchar, b varchar, c bigint, d bigint) as "pg.regexp_substr.1"(a, b, c, d, '', 0),
    (a varchar, b varchar, c bigint, d bigint, e varchar) as "pg.regexp_substr.1"(a, b, c, d, e, 0),
    (a varchar, b varchar, c bigint, d bigint, e varchar, f bigint) as "pg.regexp_substr.1"(a, b, c, d, e, f);
-- Set-returning functions: the list of their rows.
create macro __pg.regexp_matches_rows
    (a varchar, b varchar) as "pg.regexp_matches.1"(a, b, ''),
    (a varchar, b varchar, c varchar) as "pg.regexp_matches.1"(a, b, c);
create macro __pg.regexp_split_to_table_rows
    (a varchar, b varchar) as "pg.regexp_split.1"(a, b, ''),
    (a varchar, b varchar, c varchar) as "pg.regexp_split.1"(a, b, c);
create macro __pg.string_to_table_rows
    (a varchar, b varchar) as "pg.string_to_array.1"(a, b, null),
    (a varchar, b varchar, c varchar) as "pg.string_to_array.1"(a, b, c);
