SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid AS b JOIN (
    SELECT MAX(price) AS price, window_start, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) AS h ON b.price = h.price AND b.date_time >= h.window_start AND b.date_time < h.window_end
