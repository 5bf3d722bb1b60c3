-- Texts: places count from 1 and negative ones from the end; other types are cast to STRING.

create macro __spark.concat_part(x) as struct_extract(row(
        case when typeof(x) not like '%]' and typeof(x) <> 'BLOB' then __spark.cast_string(x) end,
        case when typeof(x) like '%]' or typeof(x) = 'BLOB' then x end),
    1 + (typeof(x) like '%]' or typeof(x) = 'BLOB')::integer);
create macro __spark.concat
    (a varchar, b varchar) as a || b,
    (a, b) as __spark.concat_part(a) || __spark.concat_part(b);
create macro __spark.texts
    (x varchar) as case when x is null then []::varchar[] else [x] end,
    (x varchar[]) as list_filter(coalesce(x, []), lambda e: e is not null),
    (x) as case when x is null then []::varchar[] else [__spark.cast_string(x)] end;
create macro __spark.length
    (x varchar) as length(x)::integer,
    (x blob) as octet_length(x)::integer,
    (x) as length(__spark.cast_string(x))::integer;
create macro __spark.char_length(x) as __spark.length(x);
create macro __spark.character_length(x) as __spark.length(x);
create macro __spark.len(x) as __spark.length(x);
create macro __spark.octet_length
    (x blob) as octet_length(x)::integer,
    (x) as strlen(__spark.cast_string(x))::integer;
create macro __spark.bit_length(x) as __spark.octet_length(x) * 8;
create macro __spark.ascii(x) as case when __spark.cast_string(x) = '' then 0 else unicode(__spark.cast_string(x)) end;
create macro __spark.char(n) as case when n::bigint < 0 then '' when n::bigint % 256 = 0 then chr(0) else chr((n::bigint % 256)::integer) end;
create macro __spark.chr(n) as __spark.char(n);

-- The first place of substring(): 0 counts as 1, a negative one counts from the end.
create macro __spark.substring_of(s, p, n) as case when s is null or p is null or n is null then null when n <= 0 then ''
    when p > 0 then substr(s, p, n)
    when p = 0 then substr(s, 1, n)
    when length(s) + p >= 0 then substr(s, length(s) + p + 1, n)
    when n + length(s) + p <= 0 then ''
    else substr(s, 1, n + length(s) + p) end;
create macro __spark.substring
    (s blob, p integer, n integer) as "spark.binary_part.1"(s, p, n),
    (s blob, p integer) as "spark.binary_part.1"(s, p, 2147483647),
    (s, p, n) as __spark.substring_of(__spark.text(s), __spark.cast_int(p)::bigint, __spark.cast_int(n)::bigint),
    (s, p) as __spark.substring_of(__spark.text(s), __spark.cast_int(p)::bigint, 2147483647);
create macro __spark.substr
    (s, p) as __spark.substring(s, p),
    (s, p, n) as __spark.substring(s, p, n);
-- Functions of BINARY that would return BINARY are refused.
create macro __spark.text
    (x varchar) as x,
    (x bigint) as x::varchar,
    (x blob) as case when x is not null then error('this function of BINARY is not supported: cast it to STRING') end::varchar,
    (x) as __spark.cast_string(x);
create macro __spark.left
    (s blob, n integer) as "spark.binary_part.1"(s, 1, n),
    (s, n) as case when s is null then null when __spark.cast_int(n) <= 0 then '' else substr(__spark.text(s), 1, __spark.cast_int(n)::bigint) end;
create macro __spark.right
    (s blob, n integer) as case when s is null or n is null then null when n > 0 then "spark.binary_part.1"(s, -least(n, octet_length(s)::integer), n) else ''::blob end,
    (s, n) as case when s is null then null when __spark.cast_int(n) <= 0 then '' else "right"(__spark.text(s), __spark.cast_int(n)::bigint) end;
create macro __spark.substring_index(s, d, n) as "spark.substring_index.1"(__spark.cast_string(s), d, n::integer);
create macro __spark.locate(sub, s, p) as case when sub is null or s is null or p is null then null when p < 1 then 0
    when instr(substr(__spark.cast_string(s), p), __spark.cast_string(sub)) = 0 then 0
    else (instr(substr(__spark.cast_string(s), p), __spark.cast_string(sub)) + p - 1)::integer end;
create macro __spark.instr(s, sub) as instr(__spark.cast_string(s), __spark.cast_string(sub))::integer;
create macro __spark.instr_from(s, sub, p, n) as "spark.instr.1"(__spark.cast_string(s), __spark.cast_string(sub), p::integer, n::integer);
create macro __spark.overlay
    (s blob, r blob, p integer) as "spark.binary_overlay.1"(s, r, p, -1),
    (s blob, r blob, p integer, n integer) as "spark.binary_overlay.1"(s, r, p, n),
    (s, r, p) as __spark.overlay_of(__spark.text(s), __spark.text(r), p::integer, length(__spark.text(r))::integer),
    (s, r, p, n) as __spark.overlay_of(__spark.text(s), __spark.text(r), p::integer,
        case when n < 0 then length(__spark.text(r))::integer else n::integer end);
create macro __spark.overlay_of(s, r, p, n) as
    __spark.substring(s, 1, p - 1) || r || __spark.substring(s, p + n, 2147483647);
create macro __spark.lpad
    (s blob, n integer) as "spark.binary_pad.1"(s, n, '\x00'::blob, true),
    (s blob, n integer, p blob) as "spark.binary_pad.1"(s, n, p, true),
    (s, n) as __spark.lpad(s, n, ' '),
    (s, n, p) as case when s is null or n is null or p is null then null when n <= 0 then '' when p = '' then substr(__spark.text(s), 1, n) else lpad(__spark.text(s), n::integer, p) end;
create macro __spark.rpad
    (s blob, n integer) as "spark.binary_pad.1"(s, n, '\x00'::blob, false),
    (s blob, n integer, p blob) as "spark.binary_pad.1"(s, n, p, false),
    (s, n) as __spark.rpad(s, n, ' '),
    (s, n, p) as case when s is null or n is null or p is null then null when n <= 0 then '' when p = '' then substr(__spark.text(s), 1, n) else rpad(__spark.text(s), n::integer, p) end;
create macro __spark.repeat(s, n) as case when s is null then null when __spark.cast_int(n) <= 0 then '' else repeat(__spark.text(s), __spark.cast_int(n)::bigint) end;
create macro __spark.space(n) as __spark.repeat(' ', n);
create macro __spark.replace
    (s, a) as __spark.replace(s, a, ''),
    (s, a, b) as case when a = '' then s else replace(__spark.cast_string(s), __spark.cast_string(a), __spark.cast_string(b)) end;
create macro __spark.translate(s, a, b) as translate(__spark.cast_string(s), a, b);
create macro __spark.reverse
    (x blob) as "spark.binary_reverse.1"(x),
    (x) as __spark.reverse_by(x, __spark.by_type(x, 1 + (typeof(x) like '%]')::integer));
create macro __spark.reverse_by
    (x, way date) as reverse(__spark.cast_string(x)),
    (x, way time) as /* inline */ list_reverse(x);
create macro __spark.initcap(s) as "spark.initcap.1"(__spark.cast_string(s));
create macro __spark.soundex(s) as "spark.soundex.1"(__spark.cast_string(s));
create macro __spark.levenshtein
    (a, b) as "spark.levenshtein.1"(__spark.cast_string(a), __spark.cast_string(b)),
    (a, b, m) as case when "spark.levenshtein.1"(a, b) > m then -1 else "spark.levenshtein.1"(a, b) end;
create macro __spark.contains(a, b) as contains(__spark.cast_string(a), __spark.cast_string(b));
create macro __spark.startswith(a, b) as starts_with(__spark.cast_string(a), __spark.cast_string(b));
create macro __spark.endswith(a, b) as suffix(__spark.cast_string(a), __spark.cast_string(b));
create macro __spark.split
    (s, p) as "spark.split.1"(__spark.cast_string(s), p, -1),
    (s, p, n) as "spark.split.1"(__spark.cast_string(s), p, n::integer);
create macro __spark.split_part(s, d, n) as case when s is null or d is null or n is null then null
    when n = 0 then error('the place in split_part must not be 0')
    when d = '' then case when abs(n) = 1 then s else '' end else split_part(s, d, n) end;
create macro __spark.find_in_set(s, l) as case when s is null or l is null then null when contains(s, ',') then 0
    else coalesce(list_position(string_split(l, ','), s), 0)::integer end;
create macro __spark.rlike(s, p) as "spark.rlike.1"(__spark.cast_string(s), p);
create macro __spark.regexp(s, p) as __spark.rlike(s, p);
create macro __spark.regexp_like(s, p) as __spark.rlike(s, p);
create macro __spark.regexp_extract
    (s, p) as "spark.regexp_extract.1"(s, p, 1),
    (s, p, n) as "spark.regexp_extract.1"(s, p, n::integer);
create macro __spark.regexp_extract_all
    (s, p) as "spark.regexp_extract_all.1"(s, p, 1),
    (s, p, n) as "spark.regexp_extract_all.1"(s, p, n::integer);
create macro __spark.regexp_replace
    (s, p, r) as "spark.regexp_replace.1"(__spark.cast_string(s), p, r, 1),
    (s, p, r, n) as "spark.regexp_replace.1"(__spark.cast_string(s), p, r, n::integer);
create macro __spark.regexp_count(s, p) as "spark.regexp_count.1"(s, p);
create macro __spark.regexp_instr
    (s, p) as "spark.regexp_instr.1"(s, p),
    (s, p, n) as "spark.regexp_instr.1"(s, p);
create macro __spark.regexp_substr(s, p) as "spark.regexp_substr.1"(s, p);
create macro __spark.mask
    (s) as __spark.mask_by(s, 'X', 'x', 'n', null),
    (s, u) as __spark.mask_by(s, u, 'x', 'n', null),
    (s, u, l) as __spark.mask_by(s, u, l, 'n', null),
    (s, u, l, d) as __spark.mask_by(s, u, l, d, null),
    (s, u, l, d, o) as __spark.mask_by(s, u, l, d, o);
-- A NULL keeps the characters of a kind.
create macro __spark.mask_by(s, u, l, d, o) as
    "spark.mask.1"(s::varchar, coalesce(u::varchar, ''), coalesce(l::varchar, ''), coalesce(d::varchar, ''), coalesce(o::varchar, ''));
create macro __spark.as_binary
    (x blob) as x,
    (x) as encode(__spark.cast_string(x));
create macro __spark.base64(x) as to_base64(__spark.as_binary(x));
-- Java's decoder skips what is no sign of base 64, and needs no = at the end.
create macro __spark.base64_signs(x) as rpad(x, ((length(x) + 3) // 4 * 4)::integer, '=');
create macro __spark.unbase64(x) as from_base64(__spark.base64_signs(regexp_replace(x, '[^A-Za-z0-9+/]', '', 'g')));
create macro __spark.hex
    (x bigint) as to_hex(x),
    (x varchar) as hex(x),
    (x blob) as hex(x);
create macro __spark.unhex(x) as "spark.unhex.1"(__spark.cast_string(x));
create macro __spark.bin(x) as bin(__spark.cast_bigint(x));
create macro __spark.md5(x) as md5(__spark.as_binary(x));
create macro __spark.sha(x) as sha1(__spark.as_binary(x));
create macro __spark.sha1(x) as sha1(__spark.as_binary(x));
create macro __spark.sha2(x, n) as "spark.sha2.1"(__spark.as_binary(x), n::integer);
create macro __spark.crc32(x) as "spark.crc32.1"(__spark.as_binary(x));
create macro __spark.luhn_check(x) as "spark.luhn_check.1"(__spark.cast_string(x));
create macro __spark.url_encode(x) as "spark.url_encode.1"(x);
create macro __spark.url_decode(x) as "spark.url_decode.1"(x, false);
create macro __spark.try_url_decode(x) as "spark.url_decode.1"(x, true);
create macro __spark.conv(x, a, b) as "spark.conv.1"(__spark.cast_string(x), a::integer, b::integer);
create macro __spark.format_number(x, n) as "spark.format_number.2"(x::varchar, n::integer, typeof(x) in ('DOUBLE', 'FLOAT'));
create macro __spark.format_argument
    (x varchar) as 's:' || x,
    (x boolean) as 'b:' || x::varchar,
    (x bigint) as 'i:' || x::varchar,
    (x) as case when typeof(x) in ('DOUBLE', 'FLOAT') or typeof(x) like 'DECIMAL%' then 'd:' || __spark.cast_string(x)
        else 's:' || __spark.cast_string(x) end;
create macro __spark.decode_charset(x, c) as "spark.decode.1"(__spark.as_binary(x), c);
create macro __spark.encode(x, c) as "spark.encode.1"(__spark.cast_string(x), c);
create macro __spark.elt(n, l) as case when n is null then null
    when n < 1 or n > len(l) then error('elt() has no argument of this number') else l[n] end;
create macro __spark.str_to_map
    (s) as __spark.str_to_map(s, ',', ':'),
    (s, p) as __spark.str_to_map(s, p, ':'),
    (s, p, k) as case when s is not null then map("spark.str_to_map.1"(s, p, k)[1], "spark.str_to_map.1"(s, p, k)[2]) end;
create macro __spark.quote(s) as "spark.quote.1"(__spark.cast_string(s));
create macro __spark.equal_null(a, b) as a is not distinct from b;
create macro __spark.isnull(a) as a is null;
create macro __spark.isnotnull(a) as a is not null;
create macro __spark.isnan(a) as coalesce(isnan(__spark.cast_double(a)), false);
create macro __spark.nanvl(a, b) as case when isnan(__spark.cast_double(a)) then b else a end;
create macro __spark.nullifzero(a) as case when a <> 0 then a end;
create macro __spark.zeroifnull(a) as coalesce(a, 0);
create macro __spark.raise_error(m) as error(m);
create macro __spark.assert_true
    (c) as case when c then null else error('the condition is not true') end,
    (c, m) as case when c then null else error(m) end;
create macro __spark.current_catalog() as 'spark_catalog';
create macro __spark.current_database() as 'default';
create macro __spark.current_schema() as 'default';
create macro __spark.like_pattern(p, e) as case
    when contains(replace(replace(replace(p, e || e, ''), e || '%', ''), e || '_', ''), e)
    then error('LIKE allows "' || e || '" only before %, _ and itself') else p end;

-- A value as the hash functions take it: its kind and its text.
create macro __spark.hashed(x) as case
    when x is null then null
    when typeof(x) in ('TINYINT', 'SMALLINT', 'INTEGER') then 'i:' || x::varchar
    when typeof(x) = 'BOOLEAN' then case when x::varchar = 'true' then 'i:1' else 'i:0' end
    when typeof(x) = 'BIGINT' then 'l:' || x::varchar
    when typeof(x) = 'DATE' then 'i:' || (epoch_us(try_cast(x::varchar as date)) // 86400000000)::varchar
    when typeof(x) = 'TIMESTAMP' then 'l:' || epoch_us(try_cast(x::varchar as timestamp))::varchar
    when typeof(x) = 'TIMESTAMP WITH TIME ZONE' then 'l:' || epoch_us(try_cast(x::varchar as timestamptz))::varchar
    when typeof(x) = 'FLOAT' then 'f:' || x::varchar
    when typeof(x) = 'DOUBLE' then 'd:' || x::varchar
    when typeof(x) = 'VARCHAR' then 's:' || x::varchar
    when typeof(x) = 'BLOB' then 'b:' || hex(try_cast(x::varchar as blob))
    when __spark.is_decimal(x) and __spark.digits(x) > 18 then 'n:' || replace(x::varchar, '.', '')
    when __spark.is_decimal(x) and __spark.digits(x) <= 18 then 'l:' || replace(x::varchar, '.', '')
    else error('hash of ' || typeof(x) || ' is not supported') end;
create macro __spark.hash_parts(x) as /* inline */ __spark.hash_parts_by(x, __spark.by_type(x, 1 + (typeof(x) like '%]' or typeof(x) like 'STRUCT(%')::integer));
create macro __spark.hash_parts_by
    (x, way date) as /* inline */ [__spark.hashed(x)],
    (x, way time) as /* inline */ "spark.hash_parts.1"(to_json([x])::varchar, typeof(x));
create macro __spark.is_valid_utf8
    (x blob) as "spark.valid_text.1"(x, 'null') is not null,
    (x varchar) as case when x is not null then true end;
create macro __spark.make_valid_utf8
    (x blob) as "spark.valid_text.1"(x, 'replace'),
    (x) as __spark.cast_string(x);
create macro __spark.validate_utf8
    (x blob) as "spark.valid_text.1"(x, 'error'),
    (x) as __spark.cast_string(x);
create macro __spark.try_validate_utf8
    (x blob) as "spark.valid_text.1"(x, 'null'),
    (x) as __spark.cast_string(x);
create macro __spark.hmac
    (k, m) as __spark.hmac(k, m, 'SHA-256'),
    (k, m, a) as "spark.hmac.1"(__spark.as_binary(k), __spark.as_binary(m), a);
create macro __spark.to_base32(x) as "spark.to_base32.1"(__spark.as_binary(x));
create macro __spark.from_base32(x) as "spark.from_base32.1"(__spark.cast_string(x));
create macro __spark.jaro_winkler_similarity(a, b) as "spark.jaro_winkler.1"(__spark.cast_string(a), __spark.cast_string(b));
create macro __spark.parse_url
    (u, p) as "spark.parse_url.1"(u, p, '', true),
    (u, p, k) as "spark.parse_url.1"(u, p, k, true);
create macro __spark.try_parse_url
    (u, p) as "spark.parse_url.1"(u, p, '', false),
    (u, p, k) as "spark.parse_url.1"(u, p, k, false);
create macro __spark.from_base64(x) as from_base64(__spark.base64_signs(regexp_replace(x, '\s', '', 'g')));
create macro __spark.to_binary
    (x) as unhex(case when length(x) % 2 = 0 then x else '0' || x end),
    (x, f) as case lower(f) when 'hex' then unhex(case when length(x) % 2 = 0 then x else '0' || x end) when 'base64' then __spark.from_base64(x)
        when 'utf-8' then encode(x) when 'utf8' then encode(x) else error('to_binary has the formats hex, utf-8 and base64')::blob end;
create macro __spark.try_to_binary
    (x) as case when regexp_full_match(x, '[0-9a-fA-F]*') then unhex(case when length(x) % 2 = 0 then x else '0' || x end) end,
    (x, f) as case lower(f) when 'hex' then __spark.try_to_binary(x) when 'base64' then try(__spark.from_base64(x))
        when 'utf-8' then encode(x) when 'utf8' then encode(x) end;
create macro __spark.binary_to_char(x, f) as case lower(f) when 'base64' then to_base64(x) when 'hex' then hex(x)
    when 'utf-8' then decode(x) else error('to_char of BINARY has the formats base64, hex and utf-8') end;
create macro __spark.to_char
    (x blob, f varchar) as __spark.binary_to_char(x, f),
    (x date, f varchar) as __spark.date_format(x, f),
    (x timestamp, f varchar) as __spark.date_format(x, f),
    (x timestamptz, f varchar) as __spark.date_format(x, f),
    (x, f) as "spark.number_to_char.1"(x::varchar, f);
create macro __spark.to_varchar
    (x blob, f varchar) as __spark.binary_to_char(x, f),
    (x date, f varchar) as __spark.date_format(x, f),
    (x timestamp, f varchar) as __spark.date_format(x, f),
    (x timestamptz, f varchar) as __spark.date_format(x, f),
    (x, f) as "spark.number_to_char.1"(x::varchar, f);
