-- a view has no order
select id from t order by a;
project #0
  project #0, #1
    get t (0, 1)

-- LIMIT needs it
select id from t order by a desc, id limit 3 offset 1;
project #0
  top n 3 offset 1 by #1 desc, #0
    project #0, #1
      get t (0, 1)
