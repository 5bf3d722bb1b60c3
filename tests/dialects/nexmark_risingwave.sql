-- q0
SELECT auction, bidder, price, date_time, extra FROM bid;
-- q1
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid;
-- q2
SELECT auction, price FROM bid WHERE auction % 123 = 0;
-- q3
SELECT p.name, p.city, p.state, a.id
FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA');
-- q4
SELECT q.category, avg(q.final) AS average
FROM (
    SELECT max(b.price) AS final, a.category
    FROM auction a, bid b
    WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
) q
GROUP BY q.category;
-- q5
WITH counted AS (
    SELECT auction, count(*) AS num, window_start, window_end
    FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY auction, window_start, window_end
)
SELECT c.auction, c.num, c.window_start AS starttime, c.window_end AS endtime
FROM counted AS c
JOIN (SELECT max(num) AS num, window_end FROM counted GROUP BY window_end) AS h
    ON c.window_end = h.window_end AND c.num = h.num
EMIT ON WINDOW CLOSE;
-- q6
SELECT seller, avg(price) AS average
FROM (
    SELECT a.seller, w.price, ROW_NUMBER() OVER (PARTITION BY a.seller ORDER BY a.expires DESC, a.id DESC) AS rank_number
    FROM (
        SELECT a.id, max(b.price) AS price FROM auction a JOIN bid b ON a.id = b.auction
        WHERE b.date_time BETWEEN a.date_time AND a.expires
        GROUP BY a.id
    ) w JOIN auction a ON a.id = w.id
) AS ranked
WHERE rank_number <= 10
GROUP BY seller;
-- q7
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM TUMBLE(bid, date_time, INTERVAL '10' SECOND) b
JOIN (
    SELECT max(price) AS maxprice, window_end
    FROM TUMBLE(bid, date_time, INTERVAL '10' SECOND)
    GROUP BY window_end
) m ON b.window_end = m.window_end AND b.price = m.maxprice
EMIT ON WINDOW CLOSE;
-- q8
SELECT p.id, p.name, p.starttime
FROM (
    SELECT id, name, window_start AS starttime, window_end AS endtime
    FROM TUMBLE(person, date_time, INTERVAL '10' SECOND)
    GROUP BY id, name, window_start, window_end
) p JOIN (
    SELECT seller, window_start AS starttime, window_end AS endtime
    FROM TUMBLE(auction, date_time, INTERVAL '10' SECOND)
    GROUP BY seller, window_start, window_end
) a ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime;
-- q9
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra,
    auction, bidder, price, bid_time, bid_extra
FROM (
    SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_time, b.extra AS bid_extra,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS rownum
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) tmp
WHERE rownum <= 1;
-- q10
SELECT auction, bidder, price, date_time, extra,
    TO_CHAR(date_time, 'YYYY-MM-DD') AS day, TO_CHAR(date_time, 'HH24:MI') AS minute
FROM bid;
-- q11
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM SESSION(bid, date_time, INTERVAL '10' SECOND, bidder)
GROUP BY bidder, window_start, window_end;
-- q12
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TUMBLE(bid, PROCTIME(), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end;
-- q13
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input FOR SYSTEM_TIME AS OF PROCTIME() s ON mod(b.auction, 10000) = s.key;
-- q14
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN extract(hour FROM date_time) >= 8 AND extract(hour FROM date_time) <= 18 THEN 'dayTime'
        WHEN extract(hour FROM date_time) <= 6 OR extract(hour FROM date_time) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bid_time_type,
    date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_count
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
-- q15
SELECT to_char(date_time, 'YYYY-MM-DD') AS "day",
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(distinct bidder) AS total_bidders,
    count(distinct bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(distinct bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(distinct bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    count(distinct auction) AS total_auctions,
    count(distinct auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    count(distinct auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(distinct auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY to_char(date_time, 'YYYY-MM-DD');
-- q16
SELECT channel, to_char(date_time, 'YYYY-MM-DD') AS "day", max(to_char(date_time, 'HH24:MI')) AS "minute",
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    count(distinct bidder) AS total_bidders,
    count(distinct bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    count(distinct bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(distinct bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    count(distinct auction) AS total_auctions,
    count(distinct auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    count(distinct auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(distinct auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY to_char(date_time, 'YYYY-MM-DD'), channel;
-- q17
SELECT auction, to_char(date_time, 'YYYY-MM-DD') AS day,
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY to_char(date_time, 'YYYY-MM-DD'), auction;
-- q18
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS rank_number FROM bid
) AS ranked
WHERE rank_number <= 1;
-- q19
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS rank_number FROM bid
) AS ranked
WHERE rank_number <= 10;
-- q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, b.extra AS bid_extra,
    a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category, a.extra
FROM bid AS b INNER JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10;
-- q21
SELECT auction, bidder, price, channel,
    CASE
        WHEN LOWER(channel) = 'apple' THEN '0'
        WHEN LOWER(channel) = 'google' THEN '1'
        WHEN LOWER(channel) = 'facebook' THEN '2'
        WHEN LOWER(channel) = 'baidu' THEN '3'
        ELSE (regexp_match(url, '(&|^|\?)channel_id=([^&]*)'))[2]
    END AS channel_id
FROM bid
WHERE (regexp_match(url, '(&|^|\?)channel_id=([^&]*)'))[2] IS NOT NULL
    OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu');
-- q22
SELECT auction, bidder, price, channel,
    split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid;
