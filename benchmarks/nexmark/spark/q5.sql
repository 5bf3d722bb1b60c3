SELECT found.auction, found.num, starttime, endtime
FROM (
    SELECT explode(filter(every, one -> one.num = highest)) AS found, starttime, endtime
    FROM (
        SELECT collect_list(struct(auction, num)) AS every, max(num) AS highest,
            slid.start AS starttime, slid.end AS endtime
        FROM (
            SELECT auction, count(*) AS num, window(date_time, '10 seconds', '2 seconds') AS slid
            FROM bid
            GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
        )
        GROUP BY slid
    )
)
