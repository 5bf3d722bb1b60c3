SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra,
    auction, bidder, price, bid_time, bid_extra
FROM (
    SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_time, b.extra AS bid_extra,
        row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS n
    FROM auction AS a JOIN bid AS b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
) AS ranked
WHERE n = 1
