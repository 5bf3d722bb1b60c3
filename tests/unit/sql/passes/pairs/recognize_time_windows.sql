-- the marked projection becomes a window of time
select window_start, count(*) from TUMBLE(t, ts, INTERVAL '1 minute') group by window_start;
project #0, #1
  aggregate count_star() by #5
    project #0, #1, #2, #3, #4, #6, #7
      time window
        get t (0, 1, 2, 3, 4)
