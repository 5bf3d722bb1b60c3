-- Arithmetic of decimals: binding a text again must not widen what the plan says.
select sum(d * (1 - d)) as s from t;
select sum(d + d + d + 1) as s, avg(1 - d) as a, min(1 - d) as lo, max(d * (1 + d)) as hi from t;
select count(distinct d * (1 - d)) as n, sum(distinct 1 - d) as s from t;
select a, sum(d * (1 - d)) as s from t group by rollup (a);
select 1 - d as x from t union select id from t;
select 1 - d as x from t union all select d * (1 - d) from t;
select 1 - d as x from t except select d * d from t where a = 1;
select id from t where d * (1 - d) in (select 1 - d from t);
select id from t where d * (1 - d) > (select avg(1 - d) from t);
select t.id, x.id as other from t join t x on t.d * (1 - t.d) = x.d * (1 - x.d);
select list(d * (1 - d) order by id) as l, median(1 - d) as m from t;
select sum(d * (1 - d)) filter (where a > 1) as s, first(1 - d order by id) as f from t;
select id, list_transform([d, 1 - d], lambda q: q * (1 - q)) as l from t;
select id, case when a = 1 then d * (1 - d) when a = 2 then 1 else 2.5 end as c from t;
select id, lag(d * (1 - d), 1, 0) over (order by id) as l from t;
select id, {'x': 1 - d, 'y': [d * (1 - d), 1]} as s from t;
