-- the equality that both branches have is a condition of its own
select t.id from t, u where (t.a = u.a and t.id > 1) or (t.a = u.a and u.c > 2);
project #1
  filter #0 = #2 and ((#0 = #2 and #1 > 1) or (#0 = #2 and #3 > 2))
    cross product
      get t (1, 0)
      get u (1, 2)

-- nothing is common to both branches
select id from t where a = 1 or b = 'x';
project #2
  filter (#0 = 1 or #1 = 'x')
    get t (1, 2, 0)
