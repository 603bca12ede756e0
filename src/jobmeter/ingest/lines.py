"""Validates log lines: an invalid line rejects the whole request before any of it is stored."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.log import MAX_SYSTEM_NAME, MAX_TEXT_BYTES, LogLine, cut_text
from jobmeter.model.log_batch import LEVEL_CODES, LogBatch, make_time_error
from jobmeter.model.series import check_job_id, check_name, check_project
from jobmeter.model.syslog import FACILITIES, SEVERITIES, convert_severity
from jobmeter.model.time import MAX_TIME_MS, NS_PER_MS

_MAX_TIME_NS = MAX_TIME_MS * NS_PER_MS
_SURELY_FITS = MAX_TEXT_BYTES // 4
"""Most characters of a text that fits in bytes whatever its characters are."""


def prepare(lines: Iterable[LogLine], most: int) -> LogBatch:
    """Return the lines in their stored form, in their order.

    A text of several lines becomes several lines, each a nanosecond after the previous one. A text that is too long is
    cut. A line with a severity and no level gets the severity's level. Raises InvalidRequestError naming the field,
    LimitExceededError (field ``lines``) for more than ``most``.
    """
    batch = LogBatch.from_lines(lines)
    odd = {
        place
        for place, text in enumerate(batch.texts)
        if "\n" in text or len(text) > _SURELY_FITS or text.endswith("\r")
    }
    count = len(batch) + sum(_breaks(batch.texts[place]) for place in odd)
    if count > most:
        raise LimitExceededError(f"a request may bring at most {most} log lines", "lines")
    plain = _split(batch, odd) if odd else batch
    _check(plain)
    return _add_levels(plain)


def _breaks(text: str) -> int:
    """Return the number of additional lines of a text."""
    return text.count("\n") - text.endswith("\n")


def _split(batch: LogBatch, odd: set[int]) -> LogBatch:
    """Split each text into its lines."""
    counts = np.ones(len(batch), np.int64)
    texts: list[str] = []
    for place, text in enumerate(batch.texts):
        if place not in odd:
            texts.append(text)
            continue
        parts = text.removesuffix("\n").split("\n")
        counts[place] = len(parts)
        texts.extend(cut_text(part.rstrip("\r")) for part in parts)
    within = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
    source, level = np.repeat(batch.source, counts), np.repeat(batch.level, counts)
    return LogBatch(batch.sources, source, np.repeat(batch.time_ns, counts) + within, level, texts)


def _add_levels(batch: LogBatch) -> LogBatch:
    """Give the lines that have a severity and no level the level of that severity."""
    of_source = np.array(
        [LEVEL_CODES[convert_severity(one.severity)] if one.severity is not None else 0 for one in batch.sources],
        np.uint8,
    )
    if not of_source.any():
        return batch
    return replace(batch, level=np.where(batch.level == 0, of_source[batch.source], batch.level))


def _check(batch: LogBatch) -> None:
    for project, job, replica, attempt, node, stream, facility, severity, tag in batch.sources:
        check_project(project)
        for field, name in (("replica", replica), ("node", node)):
            if name:
                check_name(name, field)
        if not 0 <= attempt < 2**31:
            raise InvalidRequestError(f"attempt {attempt} is not between 0 and 2^31", "attempt")
        _check_severity(severity)
        if job or not facility:
            check_job_id(job, "job")
        if facility:
            _check_system(facility, node, stream, tag)
        else:
            check_name(stream, "stream")
    wrong = (batch.time_ns < 0) | (batch.time_ns > _MAX_TIME_NS)
    if wrong.any():
        raise make_time_error(int(batch.time_ns[int(wrong.argmax())]))
    for text in batch.texts:
        if not text.isascii():
            _check_text(text)


def _check_severity(severity: int | None) -> None:
    if severity is not None and not 0 <= severity < len(SEVERITIES):
        raise InvalidRequestError(f"severity {severity} is not between 0 and 7", "severity")


def _check_system(facility: str, node: str, stream: str, tag: str) -> None:
    if facility not in FACILITIES:
        raise InvalidRequestError(f"facility {facility[:40]!r} is not one of {', '.join(FACILITIES)}", "facility")
    if not node:
        raise InvalidRequestError("a line of a system log names its node", "node")
    if not 1 <= len(stream) <= MAX_SYSTEM_NAME or not stream.isprintable():
        raise InvalidRequestError(f"stream is not a text of 1 to {MAX_SYSTEM_NAME} printable characters", "stream")
    if len(tag) > MAX_SYSTEM_NAME or (tag and not tag.isprintable()):
        raise InvalidRequestError(f"tag is not a text of up to {MAX_SYSTEM_NAME} printable characters", "tag")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("a text holds half of a surrogate pair: it is not Unicode", "text") from error


def split_by_project(batch: LogBatch) -> list[tuple[str, LogBatch]]:
    """Return the lines of each project, in their order."""
    projects = sorted({source.project for source in batch.sources})
    parts = [(name, batch.select_sources([source.project == name for source in batch.sources])) for name in projects]
    return [(name, part) for name, part in parts if len(part)]
