-- Recursions over edges e(id, a, b) and things t(id, a, b): each is a view, and the batch query of DuckDB.
-- Rounds of numbers.
with recursive r(n) as (select 1 union all select n + 1 from r where n < 7) select * from r;
with recursive r(n) as (select 1 union all select n + 1 from r where n < (select count(*) from e)) select * from r;
with recursive r(n) as (select a from e union select n from r) select * from r;
with recursive r(n) as (select 0 union select v from r, (values (1), (2), (n + 1)) t(v) where n < 5) select * from r;
-- What the recursion does not read is the same in every round, as long as there are rounds.
with recursive r(n) as (select a from e union (select e.b from r join e on e.a = r.n union all select 100 from e where e.b = 3)) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select e.b, r.d + 1 from e left join r on r.n = e.a where r.d < 3) select n, d, count(*) from r group by all;
with recursive r(n, d) as (select a, 0 from e union select coalesce(e.b, -1), coalesce(r.d, 0) + 1 from r left join e on r.n = e.a where r.d < 3) select * from r;
with recursive r(n, d) as (select a, 0 from e union select coalesce(e.b, -1), coalesce(r.d, 2) + 1 from e full join r on r.n = e.a where coalesce(r.d, 2) < 3) select * from r;
with recursive r(n, d) as (select a, 0 from e union select coalesce(e.b, -1), coalesce(r.d, 2) + 1 from r right join e on r.n = e.a where coalesce(r.d, 2) < 3) select * from r;
with recursive r(n, d) as (select a, 0 from e union select n + 1, d + 1 from r where d < 4 and not exists (select 1 from e where e.a = r.n)) select * from r;
with recursive r(n, d) as (select a, 0 from e union select n + 1, d + 1 from r where d < 4 and n not in (select a from e where b > 2)) select * from r;
with recursive r(n, d) as (select a, 0 from e union select n + 1, d + 1 from r where d < 4 and n in (select a from e where e.b = r.d)) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select n, d + 1 from r where d < 3 and n = any(select b from e)) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select (select min(b) from e where e.a = r.n), d + 1 from r where d < 3) select * from r;
-- A round as a whole: aggregates, the first rows, windows, sets, the round joined with itself.
with recursive r(n, d) as (select a, 0 from e union all select m, d + 1 from (select max(n) + 1 m, max(d) d from r) where d < 4) select * from r;
with recursive r(n, d) as (select a, b % 3 from e union all select c::int, d + 1 from (select count(*) c, max(d) d from (select * from r where n > 2 or d > 1)) where d < 3) select * from r;
with recursive r(n, d) as (select a, 0 from e union select distinct n + 1, d + 1 from r where d < 4 and n > (select avg(n) from r)) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select sum(n)::int, d + 1 from r where d < 3 group by d, n % 3) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select (list(n order by n))[1], d + 1 from r where d < 3 group by d, n % 3) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select count(distinct n)::int, d + 1 from r where d < 3 group by d) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select n, d + 1 from r where d < 3 group by grouping sets ((n, d), (d))) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select * from (select n + 1, d + 1 from r where d < 3 order by n limit 2)) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select n + rn::int, d + 1 from (select n, d, row_number() over (order by n) rn from r) where d < 3) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select n + rn::int, d + 1 from (select n, d, row_number() over (partition by n % 2 order by n) rn from r) where d < 3 and rn = 1) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select n, d + 1 from (select n, d from r intersect select b, 0 from e)) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select n, d + 1 from (select n, d from r except select b, 0 from e) where d < 3) select * from r;
with recursive r(a, b) as (select a, b from e union select x.a, y.b from r x join r y on x.b = y.a) select * from r;
with recursive r(n, d) as (select a, 0 from e union all (with q as (select n, d from r where d < 2) select q.n + 1, q.d + 1 from q join q q2 on q.n = q2.n)) select * from r;
-- Lists and texts as paths, other types, no recursion at all, two of them, one for each row of another table.
with recursive r(n, p) as (select a, [a] from e union all select e.b, list_append(p, e.b) from r join e on e.a = r.n where not list_contains(p, e.b) and len(p) < 4) select * from r;
with recursive r(n, s) as (select a, a::varchar from e where a < 3 union all select e.b, s || '>' || e.b from r join e on e.a = r.n where length(s) < 7) select * from r;
with recursive r(n, d) as (select a, 0 from e union all select x, d + 1 from r, unnest([n, n + 1]) u(x) where d < 2) select * from r;
with recursive r(n, d) as (select a, 0.5::decimal(4, 1) from e union select b, d + 1 from r join e on a = n where d < 3) select n, max(d) from r group by n having count(*) > 1;
with recursive r as (select a, b from e union select a, b from e where a > 2) select * from r;
with recursive x(n) as (select a from e where a < 3 union select e.b from x join e on e.a = x.n), y(n) as (select n from x union select e.a from y join e on e.b = y.n) select * from y;
select * from e, lateral (with recursive r(n) as (select e.a union select n + 1 from r where n < 4) select max(n) m from r) where b > 2;
with recursive r(n, d) as (select a, 0 from e union all select (count(distinct n) + count(distinct n) filter (where n > 2))::int, d + 1 from r where d < 3 group by d) select * from r;
