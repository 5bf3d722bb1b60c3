SELECT p.id, p.name, p.placed.start AS starttime
FROM (
    SELECT id, name, window(date_time, '10 seconds') AS placed FROM person
) AS p JOIN (
    SELECT DISTINCT seller, window(date_time, '10 seconds') AS placed FROM auction
) AS a ON p.id = a.seller AND p.placed = a.placed
