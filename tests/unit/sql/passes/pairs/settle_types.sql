-- What depends on types only is decided: here the sum of an INTEGER, and the text '1.5' beside one of VARCHAR.
select b, __pg.main.sum_of(sum(a), any_value(a)) as s from t where b = __pg.main.number_beside('1.5', null::decimal(2, 1), false, b) group by b;
project #0, #1
  aggregate sum(#1), any_value(#1) by #0
    filter #0 = '1.5'
      get t (2, 1)

-- A condition over a column stays.
select case when a = 1 then 'x' when 'y' = 'z' then 'u' else 'v' end as x from t;
project case when #0 = 1 then 'x' else 'v' end
  get t (1)
