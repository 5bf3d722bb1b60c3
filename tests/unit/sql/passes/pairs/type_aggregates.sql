-- A sum of integers is a BIGINT, and an average a numeric in the place of the witness of their type.
select b, __pg.main.sum_of(sum(a), any_value(a)) as s, __pg.main.avg_of(sum(a), count(a), any_value(a)) as m from t group by b;
project #0, #1, #2
  aggregate sum(#1), numeric_avg(#1), count(#1) by #0
    get t (2, 1)

-- The same of floats.
select __pg.main.avg_of(sum(c), count(c), any_value(c)) as m from u;
project #1
  aggregate sum(#0), avg(#0), count(#0)
    get u (2)

-- Something else reads the sum: it stays as it is.
select __pg.main.sum_of(sum(a), any_value(a)) as s, sum(a) as w from t;
project #0, #0
  aggregate sum(#0), any_value(#0)
    get t (1)

-- The average of other rows than those of the witness.
select __pg.main.avg_of(sum(a) filter (where id > 1), count(a) filter (where id > 1), any_value(a)) as m from t;
project #1
  aggregate sum(#1) filter #0 > 1, numeric_avg(#1) filter #0 > 1, count(#1) filter #0 > 1
    get t (0, 1)
