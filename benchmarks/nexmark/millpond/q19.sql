SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS n FROM bid
) AS ranked
WHERE n <= 10
