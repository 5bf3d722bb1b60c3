SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM (
    SELECT auction, price, bidder, date_time, extra, window_start, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
) AS b JOIN (
    SELECT MAX(price) AS price, window_start, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) AS h ON b.window_start = h.window_start AND b.window_end = h.window_end AND b.price = h.price
