-- each row's list is unnested on the row: no join with the distinct lists
select t.id, x.e from t, lateral (select unnest(t.l) as e) x;
project #1, #2
  cte 18
    project #0, #1
      get t (4, 0)
    project #0, #1, #2
      cte 16
        aggregate  by #0
          cte reference 18
        project #0, #1, #2
          project #0, #1, #2
            project #0, #1, #2, #0
              unnest #0
                cte reference 18

-- an aggregate needs more than one row: the join stays
select t.id, x.n from t, lateral (select count(*) as n from u where u.a = t.a) x;
project #1, #2
  cte 21
    project #0, #1
      get t (1, 0)
    project #0, #1, #2
      cte 19
        aggregate  by #0
          cte reference 21
        project #0, #1, #2
          join inner on #0 IS NOT DISTINCT FROM #3
            cte reference 21
            project case when is_null(#3) then #4 else #2 end, #0
              join left on true
                join left on #0 IS NOT DISTINCT FROM #1
                  cte reference 19
                  aggregate count_star(), count_star() by #1
                    filter #0 = #1
                      cross product
                        get u (1)
                        cte reference 19
                aggregate count_star()
                  empty
