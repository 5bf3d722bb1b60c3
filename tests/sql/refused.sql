-- What cannot be a materialized view: (a part of) the message, then the query.
-- WITH RECURSIVE is not supported
with recursive r(n) as (select 1 union all select n+1 from r where n<3) select * from r;
-- LIMIT in a materialized view must be a number
select id from t order by id limit 40%;
-- LIMIT in a materialized view must be a number
select id from t order by id limit (select count(*) from u);
-- positional_join is not supported
select t.id, u.id from t positional join u;
-- this ASOF join is not supported
select t.id, u.id from t asof right join u on t.f >= u.c;
-- GROUP BY cannot take values of type INTERVAL
select ts - timestamp '2024-01-01' as i, count(*) from t group by 1;
-- DISTINCT cannot take values of type INTERVAL
select distinct ts - timestamp '2024-01-01' from t;
-- an equality of a join cannot take values of type INTERVAL
select t.id from t join t x on t.ts - timestamp '2024-01-01' = x.ts - timestamp '2024-01-01';
-- ORDER BY with LIMIT cannot take values of type INTERVAL
select id from t order by ts - timestamp '2024-01-01' limit 1;
-- reservoir_quantile draws rows by chance
select reservoir_quantile(f, 0.5) from t;
-- random
select id, random() from t;
-- now
select id from t where ts > now();
-- TUMBLE cannot be read: it takes 3 arguments, there are 2
select * from tumble(t, ts);
-- the length of a window must be of days or less
select * from tumble(t, ts, interval 1 month);
-- the time of a window must be a timestamp, this one is INTEGER
select * from tumble(t, a, interval 1 day);
-- referenced column "nope" not found
select nope from t;
-- table with name nope does not exist
select * from nope;
-- syntax error
select from where
