-- DISTINCT, DISTINCT ON, ORDER BY with LIMIT and OFFSET: maintained top-N.
select distinct a, b from t;
select * from (select id, a, f from t order by f desc, id limit 3);
select id, f from t order by f nulls first, id limit 3 offset 1;
select distinct on (a) a, id from t order by a, id desc;
select * from t order by id limit 3;
select id from t order by f desc nulls last, id limit 2 offset 2;
select id from t order by id offset 2;
select id from t limit 100;
select id from t order by id limit 0;
select id from t order by id limit 1+1;
select distinct on (a) a, b, id from t order by a, f desc nulls last, id;
select distinct on (a) id from t order by a, id;
select distinct on (a % 2) id from t order by a % 2, id;
select distinct b from t order by b limit 1;
select distinct * from (select a, b from t);
select count(*) from (select distinct a, b from t) x;
