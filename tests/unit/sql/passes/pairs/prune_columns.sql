-- the join reads its keys; the window that nobody reads is not computed
select t.id from (select *, sum(a) over (partition by b) as s from t) t join u on t.a = u.a;
project #0
  inner joins (0, 1) on #1 = #6 [0]
    project #0, #1, #2, #3, #4, #5 [0, 1]
      window sum(#1) over by #2 [0, 1]
        get t (0, 1, 2, 3, 4) [0, 1]
    get u (1) [0]

-- a common table expression computes what its references read
with q as materialized (select a, b, id + 1 as n, a * 2 as m from t) select x.a, y.n from q x join q y on x.a = y.a;
cte 0
  project #0, #1, +(#2, 1), null [0, 2]
    get t (1, 2, 0) [0, 2]
  project #0, #6
    inner joins (0, 1) on #0 = #4 [0, 6]
      cte reference 0 [0]
      cte reference 0 [0, 2]

-- the branches of a union give what is read
select a from (select a, b from t union all select a, 'x' from u);
project #0
  set operation union all [0]
    project #0, #1 [0]
      get t (1, 2) [0]
    project #0, null [0]
      get u (1) [0]
