-- the marked projection below the one of the text becomes a table as of now
select t.id, r.c from t join (select * exclude ("millpond.as_of_now") from (select *, true as "millpond.as_of_now" from u)) r on t.a = r.a;
project #1, #4
  join inner on #0 = #3
    get t (1, 0)
    project #0, #1, #2
      as of now
        project #0, #1, #2, True
          get u (0, 1, 2)
