WITH counted AS (
    SELECT auction, count(*) AS num, starttime
    FROM (
        SELECT auction, time_bucket(INTERVAL 2 SECOND, date_time) - to_seconds(2 * k) AS starttime
        FROM bid, range(5) AS hops(k)
    )
    GROUP BY auction, starttime
)
SELECT auction, num, starttime, starttime + INTERVAL 10 SECOND AS endtime
FROM counted
QUALIFY num = max(num) OVER (PARTITION BY starttime)
