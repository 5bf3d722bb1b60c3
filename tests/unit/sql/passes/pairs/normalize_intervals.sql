-- A group of equal intervals is found and shown by their one form.
select ts - timestamp '2024-01-01' as i, count(*) as n from t group by 1;
project #0, #2
  aggregate first(-(#0, 1704067200000000)), count_star() by normalized_interval(-(#0, 1704067200000000))
    get t (3)

-- So is an equality of a join.
select t.id from t join t x on t.ts - timestamp '2024-01-01' = x.ts - timestamp '2024-01-01';
project #1
  join inner on normalized_interval(-(#0, 1704067200000000)) = normalized_interval(-(#2, 1704067200000000))
    get t (3, 0)
    get t (3)

-- And DISTINCT in an aggregate.
select count(distinct ts - timestamp '2024-01-01') as n from t;
project #0
  aggregate count(distinct normalized_interval(-(#0, 1704067200000000)))
    get t (3)
