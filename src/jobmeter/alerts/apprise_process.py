"""Sends a message through apprise, in a process that connects only to addresses that the settings allow.

Services of apprise open connections by themselves. So each message has a process with an audit hook, which refuses
connections to other addresses, redirects to them, datagrams and programs.
"""

import ipaddress
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import msgspec

from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.sink import SinkError, SinkRefusedError

MOST_SECONDS = 60
_REFUSED = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.sendto", "socket.sendmsg")
_MOST_TEXT = 300
_MOST_LOG = 10


class AppriseRequest(msgspec.Struct):
    """Input of the process: addresses of apprise, and the message. Without a text the addresses are only checked."""

    urls: list[str]
    allow: list[str]
    title: str = ""
    text: str = ""


class AppriseReply(msgspec.Struct):
    """Output of the process. ``error`` is empty after success; ``unknown`` are indexes of invalid addresses."""

    error: str = ""
    is_refused: bool = False
    unknown: list[int] = []


def is_installed() -> bool:
    """Return True if the package apprise is installed."""
    return find_spec("apprise") is not None


def find_invalid_urls(urls: Sequence[str]) -> list[int]:
    """Return the indexes of addresses that apprise does not understand. Raises SinkError."""
    return _call(AppriseRequest(urls=list(urls), allow=[])).unknown


def notify(url: str, title: str, text: str, guard: DestinationPolicy) -> None:
    """Send a message. Raises SinkRefusedError for an address that the settings do not allow, else SinkError."""
    allow = [*sorted(guard.names), *map(str, guard.networks)]
    reply = _call(AppriseRequest(urls=[url], allow=allow, title=title, text=text))
    if reply.error:
        raise (SinkRefusedError if reply.is_refused else SinkError)(reply.error)


def _call(request: AppriseRequest) -> AppriseReply:
    command = [sys.executable, "-m", __name__]
    content = msgspec.json.encode(request)
    try:
        # Without the environment no proxy takes the connections.
        done = subprocess.run(command, input=content, capture_output=True, timeout=MOST_SECONDS, env={}, check=False)
    except subprocess.TimeoutExpired as error:
        raise SinkError(f"apprise did not send the message within {MOST_SECONDS} seconds") from error
    try:
        return msgspec.json.decode(done.stdout, type=AppriseReply)
    except msgspec.DecodeError as error:
        raise SinkError(f"apprise failed: {done.stderr.decode(errors='replace').strip()[-_MOST_TEXT:]}") from error


class _Guard:
    """Audit hook of the process."""

    def __init__(self, policy: DestinationPolicy) -> None:
        self._policy = policy
        self._host = ""
        """Newest name that was looked up: a connection follows its own look-up."""
        self.refusal = ""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            self._host = os.fsdecode(arguments[0] or "")
        elif event == "socket.connect":
            self._check(arguments[1])
        elif event == "subprocess.Popen" or event in _REFUSED:
            self._refuse(f"the settings do not allow the service to use {event}")

    def _check(self, address: object) -> None:
        host = str(address[0]) if isinstance(address, tuple) else str(address)
        try:
            found = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            self._refuse(f"the settings do not allow the address {host}")
            return
        # A redirect leads to another name, which must be allowed itself.
        if not self._policy.allows(self._host or host, found):
            names = "" if self._host in {"", host} else f" of {self._host}"
            self._refuse(f"the settings do not allow the address {host}{names}")

    def _refuse(self, reason: str) -> None:
        self.refusal = self.refusal or reason
        raise PermissionError(reason)


class _Lines(logging.Handler):
    """Collects apprise's log messages about a failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.lines) < _MOST_LOG:
            self.lines.append(record.getMessage())


def main() -> None:
    """Read a request from standard input and print the reply."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=AppriseRequest)
    lines = _Lines()
    logging.getLogger("apprise").addHandler(lines)
    sys.stdout.buffer.write(msgspec.json.encode(_perform(request, lines)))


def _perform(request: AppriseRequest, lines: _Lines) -> AppriseReply:
    import apprise  # noqa: PLC0415 - an extra, and slow to import

    found = [apprise.Apprise.instantiate(url, suppress_exceptions=True) for url in request.urls]
    unknown = [at for at, service in enumerate(found) if not service]
    if unknown or not request.text:
        return AppriseReply(error="apprise does not understand the address" * bool(unknown), unknown=unknown)
    guard = _Guard(DestinationPolicy.from_settings(request.allow))
    sys.addaudithook(guard)
    sender = apprise.Apprise()
    for service in filter(None, found):
        if "overflow=" not in request.urls[0]:
            service.overflow_mode = apprise.OverflowMode.TRUNCATE
        sender.add(service)
    if sender.notify(body=request.text, title=request.title, body_format=apprise.NotifyFormat.TEXT):
        return AppriseReply()
    reason = guard.refusal or "; ".join(lines.lines) or "the service did not take the message"
    return AppriseReply(error=reason[:_MOST_TEXT], is_refused=bool(guard.refusal))


if __name__ == "__main__":
    main()
