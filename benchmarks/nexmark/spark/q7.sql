SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM (
    SELECT auction, price, bidder, CAST(date_time AS TIMESTAMP_NTZ) AS date_time, extra,
        window(date_time, '10 seconds') AS placed
    FROM bid
) AS b JOIN (
    SELECT max(price) AS price, window(date_time, '10 seconds') AS placed
    FROM bid
    GROUP BY window(date_time, '10 seconds')
) AS h ON b.placed = h.placed AND b.price = h.price
