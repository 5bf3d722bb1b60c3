WITH won AS (
    SELECT a.id, a.seller, a.expires, max(b.price) AS price
    FROM auction AS a JOIN bid AS b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.seller, a.expires
), ranked AS (
    SELECT seller, price, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS n FROM won
)
SELECT seller, avg(price) AS average FROM ranked WHERE n <= 10 GROUP BY seller
