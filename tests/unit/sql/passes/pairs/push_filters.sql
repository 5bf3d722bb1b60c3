-- below the projection, because it only passes the column on
select * from (select id, a + 1 as n from t) where id > 3 and n > 2;
project #0, #1
  filter #1 > 2
    project #0, +(#1, 1)
      filter #0 > 3
        get t (0, 1)

-- to the parts of a product; what reads two parts stays with it
select t.id from t, u where t.a = u.a and t.id > 1 and u.c < 5;
project #1
  product where #0 = #2
    filter #1 > 1
      get t (1, 0)
    filter #1 < 5
      get u (1, 2)

-- to the preserved side of an outer join only
select t.id from t left join u on t.a = u.a where t.id > 1 and u.c is null;
project #1
  filter is_null(#3)
    join left on #0 = #2
      filter #1 > 1
        get t (1, 0)
      get u (1, 2)

-- below a join for IN, unless it reads the mark
select id from t where a in (select a from u) and id > 5;
project #1
  filter #2
    mark join mark on #0 = #2
      filter #1 > 5
        get t (1, 0)
      project #0
        get u (1)
