-- WITH, read once or more.
with x as (select a, count(*) n from t group by a) select x.a, x.n, u.c from x join u on x.a=u.a;
with x as (select a from t), y as (select a from x where a>1) select * from x join y using(a);
with x as (select * from t where a>0) select x.id, y.id from x, x y where x.id=y.id;
with x as materialized (select a, count(*) c from t group by a), y as (select max(c) m from x) select x.a from x, y where x.c=y.m;
with x as (select a, sum(f) s from t group by a), y as (select avg(s) m from x) select x.a from x, y where x.s > y.m or x.s is null;
with x as (select * from t where f > 0), y as (select a, count(*) n from x group by a) select x.id, y.n, (select count(*) from x z where z.id < x.id) from x left join y using (a);
