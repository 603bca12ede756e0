"""Audit log of refusals: one line of JSON for each, with caller, action and reason. Never contains a secret."""

import json
import logging
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from jobmeter.access.principal import Principal
from jobmeter.errors import ForbiddenError, JobmeterError, ThrottledError, UnauthenticatedError
from jobmeter.model.time import Clock, format_iso

MAX_FIELD = 256
LINES_PER_SECOND = 100
"""Most lines in a second. Further refusals are only counted, so that a flood cannot fill the disk."""
MAX_FILE_BYTES = 64 * 2**20
"""Size at which a file is renamed to ``NAME.1``, replacing an older one."""

_LOG = logging.getLogger(__name__)


class Audit:
    """Audit log in a file, by default standard error. Thread-safe."""

    def __init__(self, clock: Clock, file: Path | None = None) -> None:
        self._clock = clock
        self._file = file
        self._lock = threading.Lock()
        self._second = self._lines = self._suppressed = 0

    def write_refusal(
        self,
        error: JobmeterError,
        *,
        action: str,
        principal: Principal | None = None,
        claimed: str = "",
        project: str | None = None,
        client: str = "",
        request_id: str = "",
    ) -> None:
        """Write the audit line of a refusal.

        ``claimed`` is the result of ``Authenticator.find_claimed_key`` for an unverified call, never a raw value of the
        request. A line that cannot be written is reported in the program's log; no error is raised.
        """
        now_ms = self._clock.now_ms()
        line = {
            "time": format_iso(now_ms),
            "event": "refused",
            "reason": _reason(error),
            "action": _replace_unprintable(action),
            "principal": _replace_unprintable(principal.id) if principal else None,
            "claimed": _replace_unprintable(claimed) or None,
            "project": _replace_unprintable(project) if project else None,
            "client": _replace_unprintable(client),
            "request_id": _replace_unprintable(request_id),
        }
        with self._lock:
            if not self._admit(now_ms // 1000):
                return
            if self._suppressed:
                line["suppressed"] = str(self._suppressed)
                self._suppressed = 0
            # ASCII only, control characters escaped: a value can neither start a line nor control a terminal.
            self._write(json.dumps(line, ensure_ascii=True) + "\n")

    def _admit(self, second: int) -> bool:
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND:
            self._suppressed += 1
            return False
        return True

    def _write(self, line: str) -> None:
        if self._file is None:
            sys.stderr.write(line)
            return
        try:
            descriptor = os.open(self._file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                os.write(descriptor, line.encode())
                full = os.fstat(descriptor).st_size >= MAX_FILE_BYTES
            finally:
                os.close(descriptor)
            if full:
                self._file.rename(self._file.with_name(f"{self._file.name}.1"))
        except OSError as error:
            _LOG.warning("the audit file %s cannot be written: %s", self._file, error)
            with suppress(OSError):
                sys.stderr.write(line)


def _reason(error: JobmeterError) -> str:
    if isinstance(error, UnauthenticatedError):
        return error.reason
    if isinstance(error, ForbiddenError):
        return "forbidden"
    return "throttled" if isinstance(error, ThrottledError) else type(error).__name__


def _replace_unprintable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:MAX_FIELD])
