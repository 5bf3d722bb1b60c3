-- Names of columns.
select a, b as c from t
=> select a, b as c from t
select count(*), sum(a), 1, a + 1, a::int, 'x'::text, case when a then 1 end, case when a then 1 else b end from t
=> SELECT count() AS count, __pg.main.sum_of("system".main.sum(__pg.main.summed(a)), "system".main.any_value(a)) AS sum, 1 AS "?column?", (a + 1) AS "?column?", __pg.main.int4(a) AS a, CAST('x' AS text) AS "text", CASE  WHEN (__pg.main.truth(a)) THEN (1) ELSE NULL END AS "case", CASE  WHEN (__pg.main.truth(a)) THEN (1) ELSE b END AS b FROM t
select (select max(a) from t), exists (select 1 from t), array[1], extract(year from d), interval '1 day', coalesce(a, 1) from t
=> SELECT (SELECT max(a) AS max FROM t) AS max, EXISTS(SELECT 1 AS "?column?" FROM t) AS "exists", (ARRAY[1]) AS "array", __pg.main.extract_whole('year', d) AS "extract", CAST('1 day' AS INTERVAL) AS "interval", COALESCE(a, 1) AS "coalesce" FROM t
select upper(a) from t union select 'x'
=> (SELECT __pg.main.upper(a) AS upper FROM t) UNION (SELECT 'x' AS "?column?")

-- Orders.
select a from t order by a
=> select a from t order by a
select a from t order by a desc, b desc nulls last
=> SELECT a FROM t ORDER BY a DESC NULLS FIRST, b DESC NULLS LAST
select array_agg(a order by b desc) as x, rank() over (order by b desc) as r from t
=> SELECT array_agg(a ORDER BY b DESC NULLS FIRST) AS x, rank() OVER (ORDER BY b DESC NULLS FIRST) AS r FROM t

-- Rows are compared part by part.
select 1 as x from t where (a, b) < (1, 2)
=> SELECT 1 AS x FROM t WHERE ((a < 1) OR ((a = 1) AND (b < 2)))
select 1 as x from t where (a, b) = (c, d) or (a, b) <> (c, 1 / 2)
=> SELECT 1 AS x FROM t WHERE (((a = c) AND (b = d)) OR ((a != c) OR (b != __pg.main."/"(1, 2))))

-- Operators.
select a / 2 as x from t where b / 3 > 1
=> SELECT __pg.main."/"(a, 2) AS x FROM t WHERE (__pg.main."/"(b, 3) > 1)

-- Aggregates and window functions inside typed calls.
select k, sum(a) / count(*) as x from t group by k order by 2 desc
=> SELECT __a0 AS k, __pg.main."/"(__a1, __a2) AS x FROM (SELECT k AS __a0, __pg.main.sum_of("system".main.sum(__pg.main.summed(a)), "system".main.any_value(a)) AS __a1, count() AS __a2 FROM t GROUP BY k) AS __computed ORDER BY 2 DESC NULLS FIRST
select k + 1 as k, sum(a) / 2 as x from t group by 1 having sum(a) / 2 > 3 order by max(b)
=> SELECT k AS k, __pg.main."/"(__a1, 2) AS x FROM (SELECT (k + 1) AS k, __pg.main.sum_of("system".main.sum(__pg.main.summed(a)), "system".main.any_value(a)) AS __a1, max(b) AS __a2 FROM t GROUP BY 1) AS __computed WHERE (__pg.main."/"(__a1, 2) > 3) ORDER BY __a2 NULLS LAST
select *, a / sum(a) over (partition by k) as share from t
=> SELECT * EXCLUDE (__a1, __a2), __pg.main."/"(__a1, __a2) AS "share" FROM (SELECT *, a AS __a1, __pg.main.sum_of("system".main.sum(__pg.main.summed(a)) OVER (PARTITION BY k), a) AS __a2 FROM t) AS __computed
select t.k, count(*) / 2 as n, rank() over (order by sum(a) / 2) as r from t group by t.k order by t.k limit 3
=> SELECT __a0 AS k, __pg.main."/"(__a1, 2) AS n, rank() OVER (ORDER BY __pg.main."/"(__a2, 2) NULLS LAST) AS r FROM (SELECT t.k AS __a0, count() AS __a1, __pg.main.sum_of("system".main.sum(__pg.main.summed(a)), "system".main.any_value(a)) AS __a2 FROM t GROUP BY t.k) AS __computed ORDER BY __a0 NULLS LAST LIMIT 3
select a from t where a in (select max(a) / 2 from t group by k)
=> SELECT a FROM t WHERE (a = ANY(SELECT __pg.main."/"(__a0, 2) AS "?column?" FROM (SELECT max(a) AS __a0 FROM t GROUP BY k) AS __computed))
select unnest(l) / 2 as x from t
=> SELECT __pg.main."/"(__a0, 2) AS x FROM (SELECT unnest(l) AS __a0 FROM t) AS __computed

-- Changes.
insert into t select a / 2 from u on conflict (a) do update set b = excluded.b / 2 where t.b / 2 > 1 returning a / 2, b
=> insert into t SELECT __pg.main."/"(a, 2) AS "?column?" FROM u on conflict (a) do update set b = __pg.main."/"(excluded.b, 2) where (__pg.main."/"(t.b, 2) > 1) returning __pg.main."/"(a, 2) AS "?column?", b
insert into t (a, b) values (1, 7 / 2)
=> insert into t (a, b) VALUES (1, __pg.main."/"(7, 2))
update t set a = a / 2, (b, c) = (1, d / 2) from u where t.a = u.a / 2 returning *
=> update t set a = __pg.main."/"(a, 2), (b, c) = (1, __pg.main."/"(d, 2)) from u where (t.a = __pg.main."/"(u.a, 2)) returning *
delete from t using (select a / 2 as h from u) as u where t.a = u.h
=> delete from t using (SELECT __pg.main."/"(a, 2) AS h FROM u) AS u where t.a = u.h
delete from t where a = 1
=> delete from t where a = 1
merge into t using (select a / 2 as a from u) as s on t.a = s.a / 2 when matched and case when s.a > 1 then true end then update set b = s.a / 2 when not matched then insert (a, b) values (s.a, 7 / 2)
=> merge into t using (SELECT __pg.main."/"(a, 2) AS a FROM u) AS s on (t.a = __pg.main."/"(s.a, 2)) when matched and case when s.a > 1 then true end then update set b = __pg.main."/"(s.a, 2) when not matched then insert (a, b) values (s.a, __pg.main."/"(7, 2))

-- Literals and casts.
select 1e3 as a, 1.5e-3 as b, '12'::int as c, '1.50'::numeric as d, 5::numeric as e, x::int as f, x::text as g, x::char(3) as h, x::varchar(2) as i, $1::text as j from t
=> SELECT 1000. AS a, 0.0015 AS b, CAST('12' AS INTEGER) AS c, 1.50 AS d, 5. AS e, __pg.main.int4(x) AS f, __pg.main.text_of(x) AS g, __pg.main.bpchar(x, 3) AS h, __pg.main."varchar"(x, 2) AS i, CAST($1 AS text) AS j FROM t

-- Columns that joins merge.
select * from a join b using (k) left join c on c.k = a.x
=> SELECT k, a.* EXCLUDE (k), b.* EXCLUDE (k), c.* FROM ((a INNER JOIN b USING (k)) LEFT JOIN c ON ((c.k = a.x)))
select * from a join b using (k) join c using (y)
=> SELECT y, k, (NOT regexp_full_match(a.*, '(?i)(k|y)')), (NOT regexp_full_match(b.*, '(?i)(k|y)')), c.* EXCLUDE (y) FROM ((a INNER JOIN b USING (k)) INNER JOIN c USING (y))
select * from a join b using (k), c join d using (k)
=> select * from a join b using (k), c join d using (k)
select * from a semi join b using (k)
=> select * from a semi join b using (k)
