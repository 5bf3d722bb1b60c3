-- A cast reads or makes a local time of the zone.
select tz::date as a, ts::timestamptz as b, tz = ts as c from w;
project timezone('Asia/Tokyo', #0), timezone('Asia/Tokyo', #1), #0 = timezone('Asia/Tokyo', #1)
  get w (0, 1)

-- A text in quotes that names its zone is left to the cast.
select tz > '2024-07-01 00:00' as a, tz > '2024-07-01 00:00+02' as b from w;
project #0 > timezone('Asia/Tokyo', '2024-07-01 00:00'), #0 > '2024-07-01 00:00+02'
  get w (0)

-- Another text may name it.
select s::timestamptz as a from w;
project case when regexp_matches(replace(#0, ' (BC)', ''), '[A-SU-Za-su-z/]|T.*[A-Za-z]|:\\d\\d(?:\\.\\d+)?\\s*[+-]') then #0 else timezone('Asia/Tokyo', #0) end
  get w (2)

-- Days and months are added to the local time, hours to the instant.
select tz + interval '1 hour' as a, tz - interval '1 day 1 hour' as b from w;
project +(#0, MonthsDaysMicros(months=0, days=0, micros=3600000000)), -(timezone('Asia/Tokyo', -(timezone('Asia/Tokyo', #0), MonthsDaysMicros(months=0, days=1, micros=0))), MonthsDaysMicros(months=0, days=0, micros=3600000000))
  get w (0)

-- Fields are those of the local time.
select date_part('hour', tz) as a from w;
project hour(timezone('Asia/Tokyo', #0))
  get w (0)

-- The text of an instant has the offset of its time.
select tz::varchar as a from w;
project pg.timestamptz_text.1(timezone('Asia/Tokyo', #0), coalesce(//(-(epoch_us(timezone('Asia/Tokyo', #0)), epoch_us(#0)), 1000000), 0))
  get w (0)
