SELECT c.auction, c.num, c.window_start AS starttime, c.window_end AS endtime
FROM (
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
) AS c JOIN (
    SELECT MAX(num) AS num, window_start, window_end
    FROM (
        SELECT COUNT(*) AS num, window_start, window_end
        FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end
    ) AS counted
    GROUP BY window_start, window_end
) AS h ON c.window_start = h.window_start AND c.window_end = h.window_end AND c.num = h.num
