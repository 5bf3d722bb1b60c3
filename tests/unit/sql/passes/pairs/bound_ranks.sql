-- the first two rows of each a
select id from (select id, row_number() over (partition by a order by id) as n from t) where n <= 2;
project #0
  project #0, #2
    first ranks row_number() over by #1 order #0 <= 2
      get t (0, 1)

-- rank() = 3 also needs the condition
select id from (select id, rank() over (order by a) as n from t) where n = 1 + 2;
project #0
  project #0, #2
    filter #2 = +(1, 2)
      first ranks rank() over order #1 <= 3
        get t (0, 1)

-- not bounded from above
select id from (select id, row_number() over (order by id) as n from t) where n > 2;
project #0
  project #0, #1
    filter #1 > 2
      window row_number() over order #0
        get t (0)
