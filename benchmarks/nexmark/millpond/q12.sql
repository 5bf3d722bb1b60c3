SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TUMBLE(bid, proctime(), INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
