"""Translates the engine's failures for callers."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError

from jobmeter.errors import DamagedDataError, JobmeterError, LimitExceededError, QueryTimeoutError, UnavailableError

logger = logging.getLogger(__name__)

# Numbers of ClickHouse's own table of errors (src/Common/ErrorCodes.cpp).
_TIMEOUT = frozenset({159, 160, 394})
_TOO_MUCH = frozenset({158, 241, 307, 396})
# The checksum, size or form of a stored file is wrong. Some of these also occur elsewhere; they count if a part is
# named.
_DAMAGED = frozenset({3, 32, 33, 40, 76, 107, 226, 228, 246, 271, 432})
_READ_PART = re.compile(
    r"while reading from part (?P<place>\S*?(?P<name>[^/\s]+))/? in table `?\w+`?\.`?(?P<table>\w+)"
)
_BUG = frozenset({36, 42, 43, 46, 47, 53, 60, 62, 70, 117, 215, 386, 456})
_WORDS = (
    ("No space left", "the disk is full"),
    ("NOT_ENOUGH_SPACE", "the disk is full"),
    ("Disk quota exceeded", "the disk quota is used up"),
    ("Read-only file system", "the data folder is read-only"),
    ("Permission denied", "the data folder may not be written"),
    ("TOO_MANY_PARTS", "it has not merged what was written before; slow down"),
    ("MEMORY_LIMIT_EXCEEDED", "it is out of memory"),
    ("AUTHENTICATION_FAILED", "it refused the user or the password"),
    ("Connection", "it cannot be reached"),
)


@contextmanager
def translate_failures(doing: str) -> Iterator[None]:
    """Translate the engine's errors; ``doing`` completes "the telemetry engine cannot ..."."""
    try:
        yield
    except (ClickHouseError, OSError) as error:
        raise translate(error, doing) from error


def translate(error: Exception, doing: str) -> Exception:
    """Return our error for a failure of the engine; the failure itself if it is a bug in Jobmeter."""
    code = getattr(error, "code", None)
    if code in _TIMEOUT:
        return QueryTimeoutError("the question took longer than it may and was stopped")
    if code in _TOO_MUCH and doing.startswith("read"):
        return LimitExceededError("the question needs more of the telemetry engine than one may have")
    found = find_damaged_part(error)
    if found is not None:
        logger.error("the telemetry engine cannot %s: %s", doing, error)
        return DamagedDataError(
            f"stored data is damaged: part {found[1]} of {found[0]} cannot be read, and trying again does not help; "
            "the server's operator can restore a backup or give up the part"
        )
    if code in _BUG and not isinstance(error, OperationalError):
        return error
    logger.warning("the telemetry engine cannot %s: %s", doing, error)
    return make_unavailable(str(error), doing)


def find_damaged_part(error: Exception) -> tuple[str, str, str] | None:
    """Return table, name and folder of the part whose data a failure calls damaged; None for any other failure."""
    found = _READ_PART.search(str(error)) if getattr(error, "code", None) in _DAMAGED else None
    return None if found is None else (found["table"], found["name"], found["place"])


def make_unavailable(text: str, doing: str) -> JobmeterError:
    """Return an UnavailableError with a reason that discloses nothing of the engine."""
    reason = next((words for mark, words in _WORDS if mark.lower() in text.lower()), "see the server's log")
    return UnavailableError(f"the telemetry engine cannot {doing} now: {reason}")
