"""Export metric answers as CSV and Parquet, in pieces."""

from collections.abc import Iterator

from jobmeter.query.request import Line, MetricResult
from jobmeter.server.native.endpoint import Stream

ROWS = 50_000
"""Rows of a piece."""


def write_csv(result: MetricResult, name: str) -> Stream:
    """Write CSV ``time,replica,device,value``, one row per point; several metrics add a first column ``metric``.

    Rows follow the lines of the answer, each line by time. Names contain neither commas nor quotes, so nothing is
    quoted.
    """
    return Stream(_csv(result), "text/csv; charset=utf-8", make_attachment_header(name, "csv"))


def write_parquet(result: MetricResult, name: str) -> Stream:
    """Write Parquet ``time metric replica node device value``, one row per point, a row group per piece."""
    from jobmeter.server.native import arrow  # noqa: PLC0415 - Arrow is 30 MiB, which most servers are never requested

    return Stream(arrow.write_lines(result), "application/vnd.apache.parquet", make_attachment_header(name, "parquet"))


def make_attachment_header(name: str, ending: str) -> tuple[tuple[str, str], ...]:
    """Header that names the file to a browser."""
    plain = "".join(letter if (letter.isalnum() and letter.isascii()) or letter in "-_." else "_" for letter in name)
    return (("content-disposition", f'attachment; filename="{plain}.{ending}"'),)


def split_lines(result: MetricResult) -> Iterator[tuple[Line, int, int]]:
    """Split each line into runs of at most ``ROWS`` points: the line, the first and the end."""
    for line in result.lines:
        for start in range(0, len(line.time), ROWS):
            yield line, start, min(start + ROWS, len(line.time))


def _csv(result: MetricResult) -> Iterator[bytes]:
    several = len(result.query.metrics) > 1
    yield ("metric,time,replica,device,value\n" if several else "time,replica,device,value\n").encode()
    for line, start, end in split_lines(result):
        times, values = line.time[start:end].tolist(), line.value[start:end].tolist()
        before = f"{line.metric}," if several else ""
        between = f",{line.replica},{line.device},"
        rows = [f"{before}{time}{between}{value!r}\n" for time, value in zip(times, values, strict=True)]
        yield "".join(rows).encode()
