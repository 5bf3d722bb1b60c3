-- IN keeps rows with a partner
select id from t where a in (select a from u);
project #1
  mark join mark on #0 = #2 kept True
    get t (1, 0)
    project #0
      get u (1)

-- NOT IN keeps rows that are sure to have none
select id from t where a not in (select a from u);
project #1
  mark join mark on #0 = #2 kept False
    get t (1, 0)
    project #0
      get u (1)

-- a mark that is shown is not decided
select id, a in (select a from u) from t;
project #0, #2
  mark join mark on #1 = #2
    get t (0, 1)
    project #0
      get u (1)
