-- Keys and orders that are expressions, in every rewrite to the first rows of a group.
select id from t qualify row_number() over (partition by a % 2 order by -id) = 1;
select id from t qualify row_number() over (partition by a % 2, b = 'x' order by -id) <= 2;
select id from t qualify rank() over (partition by a % 2 order by -f, d * (1 - d)) <= 2;
select id, r from (select id, row_number() over (partition by a % 2 order by -id) r from t) where r <= 2;
select distinct on (a % 2) id from t order by a % 2, -id;
select distinct on (a % 2, b = 'x') a % 2 as k, id from t order by a % 2, b = 'x', -id;
select id from t order by -id, d * (1 - d) limit 3;
select a % 2 as k, string_agg(id::varchar, ',' order by -id) as s from t group by a % 2;
select a % 2 as k, sum(d) over (partition by a % 2 order by -id) as s from t;
