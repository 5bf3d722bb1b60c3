SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder
