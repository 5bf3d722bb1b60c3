SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECOND, p.date_time) AS starttime
FROM person AS p JOIN auction AS a
    ON p.id = a.seller
    AND time_bucket(INTERVAL 10 SECOND, p.date_time) = time_bucket(INTERVAL 10 SECOND, a.date_time)
