"""The rows over which aggregates and window functions are asked."""

from __future__ import annotations

ROWS = (
    "(VALUES (1, 1, 10::bigint, 1.50, 0.5::float8, 'b', true, INTERVAL '1 day', DATE '2024-02-29'),"
    " (2, 3, 20::bigint, 2.25, 1.5::float8, 'a', false, INTERVAL '2 hours', DATE '2023-01-01'),"
    " (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
    " (4, 3, 5::bigint, -1.50, 4::float8, 'c', true, INTERVAL '-1 month', DATE '2025-12-31'),"
    " (5, 2, 20::bigint, 0.75, -2::float8, '', true, INTERVAL '1 day', DATE '2024-02-29'))"
    " AS r(n, i, b, d, f, t, o, v, day)"
)
