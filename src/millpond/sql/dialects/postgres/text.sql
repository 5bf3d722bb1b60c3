-- Functions over text and bytea.  Positions count characters from 1; those before 1 exist and are empty.
-- internal: overlaid bytea_like bytea_joined

create macro __pg.length(a blob) as system.main.octet_length(a)::integer, (a varchar) as system.main.length(a)::integer;
create macro __pg.char_length(a) as system.main.length(a)::integer;
create macro __pg.character_length(a) as system.main.length(a)::integer;
create macro __pg.octet_length(a blob) as system.main.octet_length(a)::integer, (a varchar) as system.main.strlen(a)::integer;
create macro __pg.bit_length
    (a blob) as (8 * system.main.octet_length(a))::integer,
    (a varchar) as (8 * system.main.strlen(a))::integer;
create macro __pg.bit_count(a) as "pg.bit_count.1"(a);

create macro __pg.substr
    (a varchar, b bigint) as
        system.main.substring(a, case when b < 1 then 1 else b end),
    (a varchar, b bigint, c bigint) as
        case when c < 0 and a is not null and b is not null then error('negative substring length not allowed')::varchar
            else system.main.substring(a, case when b < 1 then 1 else b end,
                case when b < 1 then (case when b + c < 1 then 0 else b + c - 1 end) else c end) end,
    (a blob, b bigint) as "pg.bytea_substr.1"(a, b, 2147483647),
    (a blob, b bigint, c bigint) as "pg.bytea_substr.1"(a, b, c);
create macro __pg.substring
    (a varchar, b bigint) as __pg.substr(a, b),
    (a varchar, b bigint, c bigint) as __pg.substr(a, b, c),
    (a blob, b bigint) as "pg.bytea_substr.1"(a, b, 2147483647),
    (a blob, b bigint, c bigint) as "pg.bytea_substr.1"(a, b, c),
    (a varchar, b varchar) as "pg.regexp_substring.1"(a, b),
    (a varchar, b varchar, c varchar) as "pg.similar_substring.1"(a, b, c);
create macro __pg.left(a, b) as
    case when b >= 0 then system.main.left(a, b)
        else system.main.left(a, case when system.main.length(a) + b < 0 then 0 else system.main.length(a) + b end) end;
create macro __pg.right(a, b) as
    case when b >= 0 then system.main.right(a, b)
        else system.main.right(a, case when system.main.length(a) + b < 0 then 0 else system.main.length(a) + b end) end;
create macro __pg.lpad
    (a, b) as "pg.lpad.1"(a, b, ' '),
    (a, b, c) as "pg.lpad.1"(a, b, c);
create macro __pg.rpad
    (a, b) as "pg.rpad.1"(a, b, ' '),
    (a, b, c) as "pg.rpad.1"(a, b, c);
create macro __pg.overlay
    (a varchar, b varchar, c bigint) as __pg.overlaid(a, b, c, system.main.length(b)),
    (a varchar, b varchar, c bigint, d bigint) as __pg.overlaid(a, b, c, d),
    (a blob, b blob, c bigint) as "pg.bytea_overlay.1"(a, b, c, system.main.octet_length(b)),
    (a blob, b blob, c bigint, d bigint) as "pg.bytea_overlay.1"(a, b, c, d);

create macro __pg.overlaid(a, b, c, d) as
    case when c <= 0 and a is not null and b is not null then error('negative substring length not allowed')::varchar
        else __pg.substr(a, 1, c - 1) || b || __pg.substr(a, c + d) end;

create macro __pg.strpos(a, b) as system.main.instr(a, b)::integer;
create macro __pg.position(a blob, b blob) as "pg.bytea_position.1"(a, b), (a varchar, b varchar) as __pg.strpos(a, b);
create macro __pg."^@"(a, b) as system.main.starts_with(a, b);
create macro __pg.split_part(a, b, c) as "pg.split_part.1"(a, b, c);
create macro __pg.replace(a, b, c) as
    case when b = '' and c is not null then a else system.main.replace(a, b, c) end;
create macro __pg.translate(a, b, c) as "pg.translate.1"(a, b, c);
create macro __pg.reverse(a) as "pg.reverse.1"(a);
create macro __pg.repeat(a, b) as
    case when b <= 0 and a is not null then '' else system.main.repeat(a, b) end;
create macro __pg.initcap(a) as "pg.initcap.1"(a);
create macro __pg.upper(a) as system.main.replace(system.main.upper(a), 'ẞ', 'ß');

create macro __pg.trim
    (a) as system.main.trim(a, ' '),
    (a varchar, b varchar) as system.main.trim(a, b),
    (a blob, b blob) as "pg.bytea_trim.1"(a, b, 'both');
create macro __pg.btrim
    (a) as system.main.trim(a, ' '),
    (a varchar, b varchar) as system.main.trim(a, b),
    (a blob, b blob) as "pg.bytea_trim.1"(a, b, 'both');
create macro __pg.ltrim
    (a) as system.main.ltrim(a, ' '),
    (a varchar, b varchar) as system.main.ltrim(a, b),
    (a blob, b blob) as "pg.bytea_trim.1"(a, b, 'left');
create macro __pg.rtrim
    (a) as system.main.rtrim(a, ' '),
    (a varchar, b varchar) as system.main.rtrim(a, b),
    (a blob, b blob) as "pg.bytea_trim.1"(a, b, 'right');

create macro __pg.ascii(a) as case when a = '' then 0 else system.main.unicode(a) end;
create macro __pg.chr(a) as "pg.chr.1"(a);
create macro __pg.unistr(a) as "pg.unistr.1"(a);
create macro __pg.to_hex(a integer) as "pg.to_hex.1"(a, 32), (a bigint) as "pg.to_hex.1"(a, 64);
create macro __pg.encode(a, b) as "pg.encode.1"(a, b);
create macro __pg.decode(a, b) as "pg.decode.1"(a, b);
create macro __pg.md5(a blob) as "pg.bytea_md5.1"(a), (a varchar) as system.main.md5(a);
create macro __pg.sha224(a) as "pg.sha.1"(a, 'sha224');
create macro __pg.sha256(a) as "pg.sha.1"(a, 'sha256');
create macro __pg.sha384(a) as "pg.sha.1"(a, 'sha384');
create macro __pg.sha512(a) as "pg.sha.1"(a, 'sha512');
create macro __pg.convert_from(a, b) as "pg.convert_from.1"(a, b);
create macro __pg.convert_to(a, b) as "pg.convert_to.1"(a, b);
-- Every byte is a character.
create macro __pg.bytea_like
    (a, b) as "pg.bytea_like.1"(a, b, '\x5C'::blob),
    (a, b, c) as "pg.bytea_like.1"(a, b, c);
create macro __pg.bytea_joined(a, b) as "pg.bytea_joined.1"(a, b);
create macro __pg.get_byte(a, b) as "pg.get_byte.1"(a, b);
create macro __pg.set_byte(a, b, c) as "pg.set_byte.1"(a, b, c);
create macro __pg.get_bit(a, b) as "pg.get_bit.1"(a, b);
create macro __pg.set_bit(a, b, c) as "pg.set_bit.1"(a, b, c);

create macro __pg.quote_ident(a) as "pg.quote_ident.1"(a);
create macro __pg.quote_literal(a) as
    "pg.quote_literal.1"(case typeof(a) when 'BOOLEAN' then a::varchar else __pg.output(a) end);
create macro __pg.quote_nullable(a) as
    "pg.quote_nullable.1"(case typeof(a) when 'BOOLEAN' then a::varchar else __pg.output(a) end);
create macro __pg.parse_ident
    (a) as "pg.parse_ident.1"(a, true),
    (a, b) as "pg.parse_ident.1"(a, b);
create macro __pg.normalize
    (a) as "pg.normalize.1"(a, 'NFC'),
    (a, b) as "pg.normalize.1"(a, b);
create macro __pg.is_normalized
    (a) as "pg.is_normalized.1"(a, 'NFC'),
    (a, b) as "pg.is_normalized.1"(a, b);
create macro __pg.string_to_array
    (a, b) as "pg.string_to_array.1"(a, b, null),
    (a, b, c) as "pg.string_to_array.1"(a, b, c);

-- Variadic: `variadic.py` makes one list of texts of the arguments.
create macro __pg.concat(a) as coalesce(system.main.array_to_string(a, ''), '');
create macro __pg.concat_ws(a, b) as
    case when a is not null then coalesce(system.main.array_to_string(b, a), '') end;
create macro __pg.format(a, b) as "pg.format.1"(a, b);
