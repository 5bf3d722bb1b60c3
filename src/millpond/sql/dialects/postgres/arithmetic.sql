-- Arithmetic: integers divide without a remainder, a division by zero is an error, numerics stay exact.
-- internal: least_of_two greatest_of_two like_any like_all not_like_any not_like_all ilike_any ilike_all
-- internal: not_ilike_any not_ilike_all any_true all_true truth

create macro __pg."/"
    (a tinyint, b tinyint) as a // b,
    (a smallint, b smallint) as a // b,
    (a integer, b integer) as a // b,
    (a bigint, b bigint) as a // b,
    (a hugeint, b hugeint) as a // b,
    (a decimal(38, 16), b decimal(38, 16)) as "pg.numeric_divide.1"(cast(a as varchar), cast(b as varchar)),
    (a double, b double) as system.main."/"(a, case when b = 0 then error('division by zero') else b end),
    (a interval, b double) as system.main."/"(a, case when b = 0 then error('division by zero') else b end),
    (a, b) as system.main."/"(a, b);

create macro __pg."|/"(a) as system.main.sqrt(case when a < 0 then error('cannot take square root of a negative number')::double else cast(a as double) end);

-- Bits that a shift moves out of the type are lost.
create macro __pg."<<"
    (a smallint, b integer) as ((((a::bigint & 65535) << (b & 31)) & 65535) - case when ((a::bigint & 65535) << (b & 31)) & 32768 <> 0 then 65536 else 0 end)::smallint,
    (a integer, b integer) as ((((a::bigint & 4294967295) << (b & 31)) & 4294967295) - case when ((a::bigint & 4294967295) << (b & 31)) & 2147483648 <> 0 then 4294967296 else 0 end)::integer,
    (a bigint, b integer) as cast((a::hugeint * (1::hugeint << (b & 63))) % 18446744073709551616::hugeint
        + case when (a::hugeint * (1::hugeint << (b & 63))) % 18446744073709551616::hugeint < -9223372036854775808::hugeint then 18446744073709551616::hugeint
            when (a::hugeint * (1::hugeint << (b & 63))) % 18446744073709551616::hugeint > 9223372036854775807::hugeint then -18446744073709551616::hugeint else 0::hugeint end as bigint),
    (a, b) as system.main."<<"(a, b);

create macro __pg."||/"(a) as system.main.cbrt(cast(a as double));

create macro __pg."#"
    (a smallint, b smallint) as system.main.xor(a, b),
    (a integer, b integer) as system.main.xor(a, b),
    (a bigint, b bigint) as system.main.xor(a, b);

create macro __pg.least_of_two(a, b) as case when a <= b then a when b < a then b end;

create macro __pg.greatest_of_two(a, b) as case when a >= b then a when b > a then b end;

-- A backslash escapes in a pattern, as in LIKE; NULL among the elements counts as it does in OR and AND.
create macro __pg.any_true(l) as system.main.list_reduce(l, lambda __one, __other: __one or __other, false);

create macro __pg.all_true(l) as system.main.list_reduce(l, lambda __one, __other: __one and __other, true);

create macro __pg.like_any(x, patterns) as
    __pg.any_true(system.main.list_transform(patterns, lambda __p: system.main.like_escape(x, __p, '\')));

create macro __pg.like_all(x, patterns) as
    __pg.all_true(system.main.list_transform(patterns, lambda __p: system.main.like_escape(x, __p, '\')));

create macro __pg.ilike_any(x, patterns) as
    __pg.any_true(system.main.list_transform(patterns, lambda __p: system.main.ilike_escape(x, __p, '\')));

create macro __pg.ilike_all(x, patterns) as
    __pg.all_true(system.main.list_transform(patterns, lambda __p: system.main.ilike_escape(x, __p, '\')));

create macro __pg.not_like_any(x, patterns) as
    __pg.any_true(system.main.list_transform(patterns, lambda __p: system.main.not_like_escape(x, __p, '\')));

create macro __pg.not_like_all(x, patterns) as
    __pg.all_true(system.main.list_transform(patterns, lambda __p: system.main.not_like_escape(x, __p, '\')));

create macro __pg.not_ilike_any(x, patterns) as
    __pg.any_true(system.main.list_transform(patterns, lambda __p: system.main.not_ilike_escape(x, __p, '\')));

create macro __pg.not_ilike_all(x, patterns) as
    __pg.all_true(system.main.list_transform(patterns, lambda __p: system.main.not_ilike_escape(x, __p, '\')));

-- A condition, which is a boolean.
create macro __pg.truth(x boolean) as x;
