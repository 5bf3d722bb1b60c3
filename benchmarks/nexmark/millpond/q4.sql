SELECT category, avg(final) AS average
FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auction AS a JOIN bid AS b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
) AS won
GROUP BY category
