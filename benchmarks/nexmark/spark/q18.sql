SELECT latest.*
FROM (
    SELECT max_by(struct(auction, bidder, price, channel, url, date_time, extra), date_time) AS latest
    FROM bid
    GROUP BY bidder, auction
)
