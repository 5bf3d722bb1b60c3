"""A table of times around changes of clocks, and expressions over it whose values depend on the time zone."""

from __future__ import annotations

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Europe/London")
TABLE = "CREATE TABLE t (id int PRIMARY KEY, tz timestamptz, l timestamp, d date, s text, i interval)"
ROWS = (
    "(0, '2024-03-31 02:30', '2024-03-31 02:30', '2024-03-31', '2024-03-31 01:30+00', '1 day')",
    "(1, '2024-10-27 00:30+00', '2024-10-27 02:30', '2024-10-27', '2024-10-27 02:30', '1 mon -1 day 25 hours')",
    "(2, '2024-10-26 02:30', '2024-11-03 01:30', '2024-12-31', '2024-07-01T00:00:00Z', '1 day 02:00:00')",
    "(3, '1850-01-01 12:00', '1850-01-01 12:00', '1850-01-01', '2024-07-01', '-1 mon')",
    "(4, '2024-04-06 15:10+00', '2024-04-07 01:45', '2000-01-01', '2024-02-29 23:59:59.5 Asia/Tokyo', '1 hour')",
    "(5, '2036-06-30 23:30:00.25', '2036-06-30 23:30', '2036-07-01', '2024-03-10 02:30', '1 year 2 days')",
    "(6, NULL, NULL, NULL, NULL, NULL)",
)
EXPRESSIONS = """
tz
l::timestamptz
d::timestamptz
s::timestamptz
tz::date
tz::timestamp
tz + i
tz - i
i + tz
tz + interval '1 day'
tz - interval '-1 month 36 hours'
tz + interval '1 month 1 day 1 hour'
tz - interval '1 month 1 day 1 hour'
tz - interval '36 hours'
tz - timestamptz '2024-01-01'
timestamptz '2024-11-01' - tz
tz - l
l - tz
date_trunc('hour', tz)
date_trunc('day', tz)
date_trunc('week', tz)
date_trunc('month', tz)
date_trunc('minute', tz)
date_trunc('day', tz, 'America/New_York')
date_trunc('hour', tz, 'Europe/Berlin')
extract(hour from tz)::int
extract(epoch from tz)::int8
extract(day from tz)::int
extract(second from tz)::float8
extract(timezone from tz)::int
extract(dow from tz)::int
extract(julian from tz)::float8
date_part('month', tz)
to_char(tz, 'YYYY-MM-DD HH24:MI:SS TZ OF')
to_timestamp(s, 'YYYY-MM-DD')
to_timestamp('2024-07-01 +05', 'YYYY-MM-DD TZH')
make_timestamptz(2024, 3, 31, id, 30, 0)
tz AT TIME ZONE 'UTC'
tz AT TIME ZONE 'Asia/Tokyo'
l AT TIME ZONE 'Asia/Tokyo'
tz = l
tz > l
tz < d
tz >= '2024-10-27 02:30'
tz = '2024-10-27 02:30+02'
tz BETWEEN '2024-03-31' AND '2024-10-27 02:00'
tz IN ('2024-10-26 02:30', '2024-10-27 02:30')
coalesce(tz, l)
CASE WHEN id > 2 THEN l ELSE tz END
greatest(l, tz)
least(d, tz)
ARRAY[tz, l]
tz::text || 'x'
concat(tz, 'x')
format('%s', tz)
to_json(tz)
jsonb_build_object('a', tz)
to_json(ARRAY[tz])
row_to_json(row(tz, l))
age(tz, timestamptz '2023-01-31')
date_bin(interval '1 day', tz, timestamptz '2024-01-01')
nullif(tz, l)
(d + time '02:30')::timestamptz
upper(tz::text)
(SELECT max(u.tz) - min(u.tz) FROM t u WHERE u.id < 3)
tz + interval '1 day' > l
""".strip().split("\n")
READ_ONLY = """
now()::date = current_date
localtimestamp = now()::timestamp
(SELECT string_agg(x::text, ', ') FROM generate_series(tz, tz + interval '1 days', interval '6 hours') x)
""".strip().split("\n")


def query(expressions: list[str]) -> str:
    listed = ", ".join(f"({e})::text AS c{n}" for n, e in enumerate(expressions))
    return f"SELECT id, {listed} FROM t"
