SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time_type,
    date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(replace(extra, 'c', '')) AS c_count
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
