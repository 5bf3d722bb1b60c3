"""Variances, correlations and fitted lines of infinities and NaN are NaN, in reads and in views."""

from __future__ import annotations

from pathlib import Path

import millpond
from millpond import Pond


def test_one_value(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        _check(pond)


def test_fitted_lines(tmp_path: Path) -> None:
    asked = "SELECT corr(y, x)::text, regr_slope(y, x)::text AS s, regr_intercept(y, x)::text AS i, regr_r2(y, x)::text AS r FROM f"
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(f"""CREATE TABLE f (id int PRIMARY KEY, x float8, y float8);
            CREATE MATERIALIZED VIEW s AS {asked};
            INSERT INTO f VALUES (1, 1, 1), (2, 2, 3), (3, 'inf', NULL); FLUSH""")
        for change, wanted in {
            "UPDATE f SET y = 4 WHERE id = 3": ("NaN",) * 4,
            "UPDATE f SET x = 'nan' WHERE id = 3": ("NaN",) * 4,
            "UPDATE f SET x = 3, y = 5 WHERE id = 3": ("1", "2", "-1", "1"),
            "UPDATE f SET x = 1": (None,) * 4,
        }.items():
            pond.sql(f"{change}; FLUSH")
            assert pond.sql(asked).fetchall() == [wanted] == pond.sql("SELECT * FROM s").fetchall()


def _check(pond: Pond) -> None:
    pond.sql("""CREATE TABLE f (id int PRIMARY KEY, x float8);
        CREATE MATERIALIZED VIEW s AS SELECT var_pop(x)::text, stddev_pop(x)::text AS y, var_samp(x) AS z FROM f;
        INSERT INTO f VALUES (1, 'inf'); FLUSH""")
    asked = "SELECT var_pop(x)::text, stddev_pop(x)::text AS y, var_samp(x) AS z FROM f"
    assert pond.sql(asked).fetchall() == [("NaN", "NaN", None)] == pond.sql("SELECT * FROM s").fetchall()
    pond.sql("UPDATE f SET x = 'nan'; FLUSH")
    assert pond.sql(asked).fetchall() == [("NaN", "NaN", None)] == pond.sql("SELECT * FROM s").fetchall()
    pond.sql("UPDATE f SET x = 7; FLUSH")
    assert pond.sql(asked).fetchall() == [("0", "0", None)] == pond.sql("SELECT * FROM s").fetchall()
    given = "FROM (VALUES (1, 'inf'::float8), (1, 'inf'), (2, 4), (2, NULL)) v(k, x)"
    filtered = pond.sql(
        f"SELECT var_pop(DISTINCT x)::text, var_pop(x) FILTER (WHERE k > 1) {given} WHERE k < 9"
    )
    assert filtered.fetchall() == [("NaN", 0.0)]
    groups = pond.sql(f"SELECT k, stddev_pop(x)::text {given} GROUP BY k HAVING var_pop(x) >= 0 ORDER BY k")
    assert groups.fetchall() == [(1, "NaN"), (2, "0")]
