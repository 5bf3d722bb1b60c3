WITH marked AS (
    SELECT bidder, date_time,
        date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) <= INTERVAL 10 SECOND AS goes_on
    FROM bid
), numbered AS (
    SELECT bidder, date_time, sum(CASE WHEN goes_on THEN 0 ELSE 1 END)
        OVER (PARTITION BY bidder ORDER BY date_time RANGE UNBOUNDED PRECEDING) AS session
    FROM marked
)
SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime, max(date_time) + INTERVAL 10 SECOND AS endtime
FROM numbered
GROUP BY bidder, session
