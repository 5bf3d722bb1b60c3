-- The zone of the session is a constant of the plan.
select current_setting('TimeZone') as zone, id from v;
project 'UTC', #0
  get v (0)
