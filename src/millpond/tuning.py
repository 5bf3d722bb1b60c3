"""Thresholds that choose how a result is computed, never which result (law 3).

Changing a number here never changes a row: it only decides which of several equivalent ways is used.  Limits
that protect (of memory, of names), sizes that are part of a stored format and schedules of the coordinator
are not here; they are next to the code that they limit.

Each threshold names the measurement behind it.  "Decision NN" is a record in `docs/decisions/`; "measured" is
`python -m benchmarks thresholds`, which does the same work with other values (`docs/benchmarks.md`).
What each pass of the physical plan saves is in `docs/benchmarks.md` (`python -m benchmarks passes`).
Modules read a threshold when they use it (`tuning.NAME`), so a test can change it in one place.
"""

from __future__ import annotations

# -- how an epoch is divided into tasks -------------------------------------------------

# Rows of an epoch for each task on Spark.  A stage takes about 20 ms before its first row: Nexmark q5 at
# 10,000 events a second took 65 ms in three stages and 24 ms in one task (decision 26).
ROWS_PER_TASK = 30_000

# How many rows that wait for time to pass cost as much as one that arrives: they are already aggregated
# (decision 26).
WAITING_ROWS_PER_ROW = 8

# How many rows in DuckDB or numpy cost as much as one row in a user's function (decision 26).
ROWS_PER_USER_CALL = 10

# If the slowest task of an epoch took longer than QUICK_TASK_US plus QUICK_STEP_US for each step, the next
# one uses all tasks: the time was not the fixed cost of a task.  It is a guard, far above that fixed cost: a
# view of several steps takes about 1 ms before its first row (decision 18).
QUICK_TASK_US = 200_000
QUICK_STEP_US = 10_000

# Total time of the tasks of the last epoch above which a plan with few rows is divided among tasks.  A view
# costs about 1 ms before its first row, so 100 views take 125 ms in one task (decision 18).
PLAN_PARTS_US = 20_000

# Weights that balance the sections of a plan: a step that computes weighs 1, each state table adds
# TABLE_WEIGHT, each non-numeric key column adds WIDE_KEY_WEIGHT (decision 18).
TABLE_WEIGHT = 4
WIDE_KEY_WEIGHT = 2

# Share of a plan's weight above which one section leaves too little for the others (decision 18).
PLAN_PART_SHARE_MAX = 0.8

# Rows of a lookup's right side that every task may read.  q13, 4 million events on Spark: 3.8 to 4.2
# CPU seconds with a shuffle of the left side, 1.5 to 2.1 without (decision 19).
LOCAL_LOOKUP_ROWS_MAX = 100_000

# -- how a task runs its steps ----------------------------------------------------------

# Rows of a scan in one task from which on its steps run batch by batch.  In q0 45 % of a worker's time was
# the kernel clearing fresh pages; batches reuse the memory of the previous batch (decision 17).
FUSED_SCAN_ROWS_MIN = 100_000

# Small splits are combined into batches of this many rows (decision 17).
FUSED_SCAN_BATCH_ROWS = 50_000

# Rows up to which chunks are copied into one, and projections of the same rows share a query: otherwise
# every step would combine the chunks again (decision 15).
ONE_CHUNK_ROWS_MAX = 20_000

# Rows up to which filters of the same rows share one sort by the hash of their readers' key: with more rows,
# each reader aggregates faster separately (decision 21).
HASH_ORDER_ROWS_MAX = 20_000

# Rows up to which steps of the same shape are computed by one call: with more rows, the fixed cost of a call
# is small.  With 100 views an epoch takes half the CPU (decision 21).
BATCHED_AGGREGATES_ROWS_MAX = 50_000

# -- how rows are sent ------------------------------------------------------------------

# Shorter chunks are combined before rows are partitioned by task: gathering costs a call for each chunk.
# Measured, combined and by chunk: 4.7 and 6.4 ms in chunks of 4,096 rows, 4.6 and 5.0 of 8,192, 4.3 and 3.9
# of 16,384.
DEAL_CHUNK_ROWS_MIN = 8192

# Rows below which columns are sent unchanged: an Arrow stream has an overhead of about a kilobyte.  Measured,
# unchanged and narrowed, with Spark's 5 ms per MiB: 174 and 206 us for 1,000 rows, 326 and 244 for 2,000.
NARROW_ROWS_MIN = 1500

# Rows sampled to decide whether a text column is sent as a dictionary, and the rows per distinct text
# from which on a source's dictionary is kept (decision 23).
NARROW_SAMPLE_ROWS = 1000
DICTIONARY_ROWS_PER_TEXT = 2

# Frames of at least this size are passed as files on one machine: through Spark a MiB takes 5 ms of CPU, and
# a file costs as much as 20 KiB do there (decision 22).
FRAME_FILE_BYTES_MIN = 64 << 10

# -- how kernels group, look up and compute ---------------------------------------------

# Rows below which numpy's own sort is faster than a radix sort (decision 1).
NUMPY_SORT_ROWS_MAX = 4096

# The maximum number of ascending runs in a column that are merged faster than sorted (decision 25).
MERGED_RUNS_MAX = 64

# Rows whose temporaries stay in the processor's cache (decision 25).
CACHE_BLOCK_ROWS = 1 << 13

# Rows that are sampled to see whether groups are few, and the rows per group from which on they are few.
# The sample takes about 2 ms per task and step (decision 25).
GROUPING_SAMPLE_ROWS = 8192
GROUPING_ROWS_PER_GROUP = 4

# Dense integer keys index an array instead of being sorted: from this many rows on (below, a sort is as
# fast), and with up to this many array slots per row (decision 17).
DENSE_ROWS_MIN = 20_000
DENSE_SLOTS_PER_ROW = 2

# The same for the keys of a lookup, whose array is reused between batches (decision 19).
DENSE_LOOKUP_ROWS_MIN = 20_000
DENSE_LOOKUP_SLOTS_PER_ROW = 4

# Expressions over text are computed once for equal rows: from this many rows on, with at least this many
# rows per distinct value, and up to this many array slots per row (decision 17).
DISTINCT_ROWS_MIN = 10_000
DISTINCT_ROWS_PER_VALUE = 4
DISTINCT_SLOTS_PER_ROW = 4

# Chunks of at least this many rows get their own query: combining them would copy every row (decision 17).
QUERY_CHUNK_ROWS_MIN = 20_000

# Rows below which a dictionary costs as much as it saves, and the rows sampled to see whether values
# repeat (decision 15).
DICTIONARY_ROWS_MIN = 1000
DICTIONARY_SAMPLE_ROWS = 1000

# Rows per wanted key from which on a search is cheaper than counting partners (decision 17).
JOIN_SEARCH_ROWS_PER_KEY = 8

# Pairs of a join in memory at one time: about 100 MB for ten columns.  Measured: 4.5 million pairs of four
# columns took 32 ms, and 20 ms in chunks of a quarter; a condition beside the key is one query for each
# chunk.
JOIN_CHUNK_ROWS = 1_000_000

# A ranking filters its input if it has this many times more rows than can be in the result (decision 15).
TOP_N_SPARE = 1.1

# Changes of all rounds of a recursion that are processed in one wave; more are processed round by round.
# Then the cost of ten edges follows what depends on them, not the number of rounds (decision 11).
RECURSION_ONE_WAVE_ROWS_MAX = 20_000

# Rows that enter the steps of a recursion in the first call, before it is known how many they produce, and
# the rows that one call may produce: they bound memory.  Measured: with a quarter or four times of either,
# 70,000 reached pairs took between 0.85 and 1.17 times as long, which is noise.
RECURSION_FIRST_ROWS = 10_000
RECURSION_CALL_ROWS = 500_000

# Keys that one query of a per-key step covers.  Measured with 20,000 keys: 50 ms, 67 with a quarter, 41 with
# four times as many; an error in a query is searched by halves among its keys.
PER_KEY_KEYS_PER_QUERY = 4096

# Windows per row from which on aggregates of closed windows are computed from slices that the windows share
# (decision 31).  20,000 rows of 20 keys took 18 ms with repeated rows and 20 ms with slices at 2 windows per
# row, 26 and 21 ms at 4, 30 and 18 ms at 8, 60 and 26 ms at 16.  It is read when a step is defined: stored
# plans keep the way that they were defined with.
SLICED_WINDOWS_MIN = 8

# Windows per row from which on groups of rows are added up for each of their windows, instead of repeated for
# each (decision 31).  100,000 rows of 10,000 keys in windows that follow every row took 64 ms with repeated
# groups and 71 ms with sums at 5 windows per row, 212 and 175 ms at 10.
SPREAD_SUMS_WINDOWS_MIN = 8

# Time buckets in which the slices of one window are stored (decision 31).
SLICE_BUCKETS = 256

# -- how user code runs -----------------------------------------------------------------

# Cost of one vectorised call over all lanes, and of a call for one row: a round costs about as much as
# fifty rows (decision 16).
LANES_ROUND_NS = 40_000
LANES_ROW_NS = 800

# Epochs in which code may fail to run in lanes before a worker stops trying, and calls before it decides
# whether lanes are worth it (decision 16).
LANES_TRIES = 3
LANES_CALLS_MIN = 64

# -- how state is read ------------------------------------------------------------------

# Rows that are sampled to see whether a lookup has few distinct keys.  Measured: a quarter and four times of
# it make a difference of at most 5 %, with 200, 2,000 and 50,000 keys.
LOOKUP_SAMPLE_ROWS = 4096

# Candidate rows that are compared in one call instead of narrowing them by another round of probes.  Measured
# with 20 keys of 100 rows each: 260 us, and 331 by probes; with 500 keys of 10 rows both take as long.
LOOKUP_COMPARE_ROWS = 2048

# Rows of a range per wanted row up to which the range is read as one slice (decision 15).
MERGE_RANGE_ROWS_PER_ROW = 2

# Runs that are this many times smaller than another one are applied over it in a scan.  Measured against
# sorting the hashes of all runs, beside a million rows: 129 and 25 ms with a fourth of that, 22 and 16 with a
# 16th, 14 and 15 with a 64th, 10 and 14 with a 256th; sorting needs memory for the hashes of all runs.
SCAN_OVERLAY_FACTOR = 16

# Rows of all runs of a scan below which merging them costs less than finding what needs no merge; a scan
# merges everything if more than one in this many rows shares its hash with another run.  Measured for two
# runs: merging all took 0.57 to 0.97 times as long with 500 to 16,000 rows; and with 100,000 rows each 1.6
# times as long where 5 % are shared, 1.3 times for 20 %, as long for 50 %, 0.8 times for 100 %.
SCAN_MERGE_ROWS_MAX = 4096
SCAN_SHARED_ROWS_FACTOR = 4

# Average rows between two that a scan omits below which copying is cheaper than slices.  Measured over a
# million rows, copied and in slices: 10 and 25 ms with one omitted in 500, 8.4 and 8.4 in 2,000, 7.5 and 2.3
# in 8,000. Whoever reads the rows pays for short slices, too.
SCAN_SLICE_ROWS = 4096

# Bytes of a run below which one copy is cheaper than writing it from many buffers (decision 23).
WRITE_COPY_BYTES_MAX = 1 << 16
