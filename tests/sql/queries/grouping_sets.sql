-- ROLLUP, CUBE, GROUPING SETS.
select a, b, count(*), grouping(a,b) from t group by rollup(a,b);
select a, b, sum(d) from t group by grouping sets ((a),(b),());
select a, b, count(*), grouping(a), grouping(b,a), grouping_id(a,b) from t group by cube(a,b);
select a, b, count(*) from t group by grouping sets ((a,b),(a),(a),());
select a, grouping(a) from t group by rollup(a);
select count(*) from t group by rollup(a, b) having count(*) > 1;
select a, b, count(*) from t group by a, rollup(b);
select grouping(a, b), a, b, sum(f) from t group by grouping sets ((a, b), (b), ()) having sum(f) is not null;
