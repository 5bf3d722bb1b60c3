WITH placed AS (
    SELECT * FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
), highest AS (
    SELECT max(price) AS price, window_end FROM placed GROUP BY window_end
)
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM placed AS b JOIN highest AS h ON b.window_end = h.window_end AND b.price = h.price
EMIT ON WINDOW CLOSE
