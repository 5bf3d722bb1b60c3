SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM SESSION(bid, date_time, INTERVAL '10 seconds', bidder)
GROUP BY bidder, window_start, window_end
