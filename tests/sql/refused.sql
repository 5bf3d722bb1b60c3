-- What cannot be a materialized view: (a part of) the message, then the query.
-- UNION in WITH RECURSIVE cannot take values of type INTERVAL
with recursive r(i) as (select ts - timestamp '2024-01-01' from t union select i from r) select * from r;
-- LIMIT in a materialized view must be a number
select id from t order by id limit 40%;
-- LIMIT in a materialized view must be a number
select id from t order by id limit (select count(*) from u);
-- positional_join is not supported
select t.id, u.id from t positional join u;
-- GROUP BY cannot take values of type INTERVAL[]
select [ts - timestamp '2024-01-01'] as i, count(*) from t group by 1;
-- DISTINCT cannot take values of type INTERVAL[]
select distinct [ts - timestamp '2024-01-01'] from t;
-- an equality of a join cannot take values of type INTERVAL[]
select t.id from t join t x on [t.ts - timestamp '2024-01-01'] = [x.ts - timestamp '2024-01-01'];
-- ORDER BY with LIMIT cannot take values of type INTERVAL[]
select id from t order by [ts - timestamp '2024-01-01'] limit 1;
-- reservoir_quantile draws rows by chance
select reservoir_quantile(f, 0.5) from t;
-- random
select id, random() from t;
-- now() can only be compared with columns
select id, now() from t;
-- now() can only be compared with columns
select id, ts > now() as late from t;
-- now() can only be compared with columns
select count(*) filter (where ts > now()) from t;
-- now() can only be compared with columns
select id from t where extract(hour from now()) = a;
-- now() can only be compared with columns
select id from t where case when a > 1 then ts > now() else true end;
-- now() can only be compared with columns
select id from t order by now() - ts limit 3;
-- now() can only be compared with columns
select t.id from t left join u on t.a = u.a and t.ts > now();
-- conditions on now() on both sides of OR must bound time on the same side
select id from t where ts > now() or ts < now() - interval '1 day';
-- has no one interval
select id from t where ts <> now();
-- only a constant of days or less can be added to now()
select id from t where ts > now() - interval '1 month';
-- only a constant of days or less can be added to now()
select id from t where ts > now() - a * interval '1 hour';
-- now() cannot stand here
select id from t limit extract(hour from now());
-- now() can only be compared with columns
select * from range(timestamp '2024-01-01', localtimestamp, interval 1 day);
-- now() can only be compared with columns
select id from t where b = current_date::varchar;
-- TUMBLE cannot be read: it takes 3 or 4 arguments, there are 2
select * from tumble(t, ts);
-- the size of CUMULATE must be a multiple of its step
select * from cumulate(t, ts, interval 7 minute, interval 1 hour);
-- CALENDAR cannot be read: it takes 3 or 4 arguments, there are 2
select * from calendar(t, ts);
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
