"""The statements that compute roll-ups. Each replaces rows: running it again gives the same result.

``FINAL`` leaves the last written copy of every sample. ``@scope`` stands for a condition that selects some jobs and a
share of the series. The same text fits every table, because all have the columns ``job`` and ``series``.
"""

from jobmeter.store.clickhouse.decimals import ALIKE, FIRST, LAST, MAXIMUM, MINIMUM, STORED, SUM, VALUE, select_stored

SCOPE_JOBS = "job IN {jobs:Array(UInt64)}"
SCOPE_SHARE = "series % {shares:UInt64} = {share:UInt64}"

LIMITS = {
    "max_bytes_before_external_sort": 1 << 30,
    "max_bytes_before_external_group_by": 1 << 30,
    "max_execution_time": 3600,
}
"""Settings of the statements. Past the first two it spills to disk instead of running out of memory."""
_SPAN = "time >= {start:Int64} AND time < {end:Int64}"
_COUNTERS = "series IN (SELECT series FROM series WHERE metric IN {counters:Array(String)} AND @scope)"

# The last sample of each counter before the span, from the hours. Nearly all are found within a day; only for series
# that have samples now, the earlier hours are searched.
_REFERENCES = f"""
SELECT job, series, argMax(closed, at) AS reference, max(at.1) AS reference_time, 1 AS known FROM (
  SELECT job, series, {LAST} AS closed, (last_time, _block_number) AS at FROM hours
  WHERE time >= {{start:Int64}} - 86400000 AND time < {{start:Int64}} AND {_COUNTERS} AND @scope
  UNION ALL
  SELECT job, series, {LAST} AS closed, (last_time, _block_number) AS at FROM hours
  WHERE time < {{start:Int64}} - 86400000 AND @scope AND (job, series) IN (
    SELECT job, series FROM samples WHERE {_SPAN} AND {_COUNTERS} AND @scope
  ) AND (job, series) NOT IN (
    SELECT job, series FROM hours WHERE time >= {{start:Int64}} - 86400000 AND time < {{start:Int64}} AND @scope
  )
) GROUP BY job, series"""

# Hours whose samples have expired, in part or all: their roll-ups have more than a new computation would.
_FADED = f"""
SELECT job, series, time FROM (
  SELECT job, series, time, argMax(count, _block_number) AS kept FROM hours
  WHERE {_SPAN} AND @scope GROUP BY job, series, time
) AS old LEFT JOIN (
  SELECT job, series, intDiv(time, 3600000) * 3600000 AS time, count() AS found FROM samples FINAL
  WHERE {_SPAN} AND @scope GROUP BY job, series, time
) AS new USING (job, series, time) WHERE kept > found"""

_MINUTE_BUCKETS = f"""
SELECT job, series, intDiv(moment, 60000) * 60000 AS bucket, count() AS n, sum(measured) AS total,
  min(measured) AS lowest, max(measured) AS highest, argMin(measured, moment) AS opened, min(moment) AS opened_at,
  argMax(measured, moment) AS closed, max(moment) AS closed_at, sum(growth) AS grown, sum(took) AS passed,
  max(minute_days) AS minute_kept, max(hour_days) AS hour_kept, max(digits) AS places, min(is_number) AS whole
FROM (
  SELECT job, series, time AS moment, measured, digits, is_number, minute_days, hour_days, {_COUNTERS} AS counter,
    lagInFrame(time, 1, if(known = 1, reference_time, time)) OVER w AS before,
    lagInFrame(measured, 1, if(known = 1, reference, measured)) OVER w AS base,
    multiIf(counter = 0, 0., measured < base, measured, measured - base) AS growth,
    if(counter = 0, 0, moment - before) AS took
  FROM (
    SELECT job, series, time, {VALUE} AS measured, digits, number != 0 OR value = 0 AS is_number, minute_days, hour_days
    FROM samples FINAL WHERE {_SPAN} AND @scope
  ) AS raw
  LEFT JOIN ({_REFERENCES}) AS references USING (job, series)
  WINDOW w AS (PARTITION BY job, series ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
WHERE @keep
GROUP BY job, series, bucket"""
_MINUTES = f"""
INSERT INTO minutes ({STORED}, minute_days, hour_days){select_stored(_MINUTE_BUCKETS, "minute_kept, hour_kept")}"""

_HOUR_BUCKETS = f"""
SELECT job, series, intDiv(minute, 3600000) * 3600000 AS bucket, sum(count) AS n, sum(summed) AS total,
  min(least_of) AS lowest, max(most_of) AS highest, argMin(began, minute) AS opened, min(first_time) AS opened_at,
  argMax(ended, minute) AS closed, max(last_time) AS closed_at, sum(increase) AS grown, sum(elapsed) AS passed,
  max(hour_days) AS hour_kept, max(if(scale IN (0, {ALIKE}), 0, scale - 1)) AS places,
  min(scale NOT IN (0, {ALIKE})) AS whole
FROM (
  SELECT job, series, time AS minute, count, {SUM} AS summed, {MINIMUM} AS least_of, {MAXIMUM} AS most_of,
    {FIRST} AS began, {LAST} AS ended, first_time, last_time, increase, elapsed, scale, hour_days
  FROM minutes FINAL WHERE {_SPAN} AND @scope
)
WHERE @keep
GROUP BY job, series, bucket"""
_HOURS = f"""
INSERT INTO hours ({STORED}, hour_days){select_stored(_HOUR_BUCKETS, "hour_kept")}"""

_KEEP_MINUTES = f"(job, series, intDiv(moment, 3600000) * 3600000) NOT IN ({_FADED})"
_KEEP_HOURS = f"(job, series, intDiv(minute, 3600000) * 3600000) NOT IN ({_FADED})"

COUNTS = f"""
SELECT intDiv(time, 3600000) * 3600000 AS hour, count() FROM samples WHERE {_SPAN} AND @scope
GROUP BY hour ORDER BY hour"""
ROLLED_BEFORE = f"SELECT 1 FROM hours WHERE {_SPAN} AND @scope LIMIT 1"
HOURS_WITH_DATA = f"SELECT DISTINCT intDiv(time, 3600000) * 3600000 AS hour FROM samples WHERE {_SPAN} ORDER BY hour"

# For each series of a job the first hour after the span with samples: late samples change its reference.
FOLLOWING = f"""
SELECT DISTINCT job, next FROM (
  SELECT job, series, min(time) AS next FROM hours
  WHERE time >= {{end:Int64}} AND time < {{end:Int64}} + 86400000 AND @scope GROUP BY job, series
  UNION ALL
  SELECT job, series, min(time) AS next FROM hours
  WHERE time >= {{end:Int64}} + 86400000 AND @scope AND (job, series) IN (
    SELECT job, series FROM samples WHERE {_SPAN} AND @scope
  ) AND (job, series) NOT IN (
    SELECT job, series FROM hours WHERE time >= {{end:Int64}} AND time < {{end:Int64}} + 86400000 AND @scope
  ) GROUP BY job, series
)"""


def restrict(sql: str, scope: str) -> str:
    """Restrict the statement to a scope (an expression over ``job`` and ``series``)."""
    return sql.replace("@scope", scope)


def make_minutes_statement(scope: str, *, again: bool) -> str:
    """Return the statement for the minutes of a span from its samples; ``again`` if they were computed before."""
    return restrict(_MINUTES.replace("@keep", _KEEP_MINUTES if again else "1"), scope)


def make_hours_statement(scope: str, *, again: bool) -> str:
    """Return the statement for the hours of a span from its minutes; ``again`` if they were computed before."""
    return restrict(_HOURS.replace("@keep", _KEEP_HOURS if again else "1"), scope)
