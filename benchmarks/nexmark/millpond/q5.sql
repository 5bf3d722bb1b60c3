WITH counted AS (
    SELECT auction, count(*) AS num, window_start, window_end
    FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
    GROUP BY auction, window_start, window_end
), highest AS (
    SELECT max(num) AS num, window_end FROM counted GROUP BY window_end
)
SELECT c.auction, c.num, c.window_start AS starttime, c.window_end AS endtime
FROM counted AS c JOIN highest AS h ON c.window_end = h.window_end AND c.num = h.num
EMIT ON WINDOW CLOSE
