-- v has no key in common with t: it is joined after u, which has one with both
select t.id from t, v, u where t.a = u.a and v.u = u.id;
project #1
  inner joins (0, 2) on #0 = #3, (0, 1) on #4 = #2
    get t (1, 0)
    get v (1)
    get u (1, 0)

-- no equality: a cross product, then the condition
select t.id from t, u where t.id < u.id;
project #0
  inner joins (0, 1) on #0 < #1
    get t (0)
    get u (0)
