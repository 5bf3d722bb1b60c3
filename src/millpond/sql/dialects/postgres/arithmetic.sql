-- Arithmetic: integers divide without a remainder and overflow with an error.

create macro __pg."/"
    (a tinyint, b tinyint) as a // b,
    (a smallint, b smallint) as a // b,
    (a integer, b integer) as a // b,
    (a bigint, b bigint) as a // b,
    (a hugeint, b hugeint) as a // b,
    (a, b) as system.main."/"(a, b);
