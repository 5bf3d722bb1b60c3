"""Retention of error rows and late rows by age and by count.

Such a table is a log.  Its runs are in buckets by the time of the epochs that wrote them.  A bucket is open
until it covers a fixed fraction of the retention, by age or by count; then the next one begins.  So old rows
are dropped bucket by bucket, without reading a row (law 5), and there are always few buckets.

Law: a row of such a table is cancelled only within its bucket (see `engine.error_rows`), so a bucket can be
dropped at any time without leaving negative weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BUCKETS = 16  # the approximate number of buckets of a table
ERRORS = "_errors"
LATE = "/late"  # the suffix of the names of tables of late rows

RowsByBucket = Mapping[int | None, int]  # rows by bucket; None for runs written before there were buckets


@dataclass(frozen=True)
class Retention:
    rows_max: int
    age_us: int

    def open_bucket(self, rows_by_bucket: RowsByBucket, now_us: int) -> int:
        """The bucket into which an epoch writes.

        >>> keep = Retention(rows_max=32, age_us=1600)
        >>> keep.open_bucket({}, 500), keep.open_bucket({500: 1}, 599), keep.open_bucket({500: 2}, 510)
        (500, 500, 510)
        """
        newest = max((b for b in rows_by_bucket if b is not None), default=None)
        if newest is None:
            return now_us
        part = newest + self.age_us // BUCKETS
        is_full = now_us >= part or rows_by_bucket[newest] >= self.rows_max // BUCKETS
        return max(now_us, newest + 1) if is_full else newest

    def expired(self, rows_by_bucket: RowsByBucket, now_us: int) -> set[int | None]:
        """The buckets to drop, because their rows are too old or too many; the newest only if it is too old.

        >>> keep = Retention(rows_max=32, age_us=1600)
        >>> sorted(keep.expired({100: 9, 200: 20, 300: 9, 1800: 1}, 1850))
        [100]
        >>> sorted(keep.expired({100: 2, 200: 2, 300: 1}, 1905))
        [100, 200]
        """
        buckets: set[int | None] = set()
        rows, after = 0, None
        for bucket in sorted((b for b in rows_by_bucket if b is not None), reverse=True):
            end = bucket + self.age_us // BUCKETS  # no row was written into it after this time
            rows += rows_by_bucket[bucket]
            if end <= now_us - self.age_us or (rows > self.rows_max and after is not None):
                buckets.add(bucket)
            after = bucket
        if None in rows_by_bucket and (buckets or rows + rows_by_bucket[None] > self.rows_max):
            buckets.add(None)  # older than all others
        return buckets


def is_log(table: str) -> bool:
    """Is this a table of error rows or late rows?"""
    return table == ERRORS or table.endswith(LATE)
