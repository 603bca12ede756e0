"""Checks of the delivery: the server and its stored data, the key, both clocks, the spool and its disk."""

import os
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec

from jobmeter.client.transport import API, Response, Transport
from jobmeter.collect import files
from jobmeter.collect.doctor.base import Check, SourceStatus
from jobmeter.collect.machine import Machine
from jobmeter.errors import ForbiddenError, JobmeterError, UnauthenticatedError
from jobmeter.model.answers import WhoAmI
from jobmeter.model.time import Clock, format_iso

_AREA = "delivery"
_WRITERS = frozenset({"admin", "writer"})
_SKEW_MS, _REFUSED_MS = 5_000, 300_000
"""Difference of clocks that is tolerated, and the lead from which a server refuses samples."""
_ROOM = 256 * 2**20
"""Largest size of a spool in bytes."""
_OLD_MS = 600_000


def check_server(transport: Transport | None, clock: Clock) -> Iterator[Check]:
    """Check the server, the key and the clocks; None if no server is given."""
    if transport is None:
        text = "no server is given, and none runs on the data folder"
        yield Check(
            _AREA, "server", SourceStatus.ABSENT, text, "give --server (JOBMETER_SERVER), or start `jobmeter serve`"
        )
        return
    begin = clock.now_ms()
    try:
        health = transport.request("GET", "/healthz")
    except JobmeterError as error:
        advice = "see its address, its certificate (--ca-file) and firewalls; samples wait in the spool meanwhile"
        yield Check(_AREA, "server", SourceStatus.PROBLEM, error.message, advice)
        return
    took = clock.now_ms() - begin
    yield Check(_AREA, "server", SourceStatus.OK, f"{transport.server} answers within {took} ms")
    yield _check_stored(transport)
    yield _check_key(transport)
    yield _check_clock(health, begin, clock.now_ms())


def _check_stored(transport: Transport) -> Check:
    try:
        text = transport.request("GET", "/readyz").body.decode("utf-8", "replace").strip()
    except JobmeterError as error:
        return Check(_AREA, "stored", SourceStatus.PROBLEM, f"the server is not ready: {error.message}", "see its log")
    if text != "ready":
        advice = "`jobmeter status` lists the damaged parts; see the server's log for the remedy"
        return Check(_AREA, "stored", SourceStatus.LIMITED, f"the server says: {text}", advice)
    return Check(_AREA, "stored", SourceStatus.OK, "the server has no damaged data")


def _check_key(transport: Transport) -> Check:
    if not transport.key:
        advice = "create one with `jobmeter key create --name nodes --role writer` and give it as JOBMETER_KEY"
        return Check(_AREA, "key", SourceStatus.PROBLEM, "no key is given", advice)
    try:
        who = msgspec.json.decode(transport.request("GET", f"{API}/whoami").body, type=WhoAmI)
    except (UnauthenticatedError, ForbiddenError) as error:
        advice = "see `jobmeter key list` on the server: the key was revoked, or belongs to another server"
        return Check(_AREA, "key", SourceStatus.PROBLEM, f"the server does not accept the key: {error.message}", advice)
    except (JobmeterError, msgspec.DecodeError) as error:
        return Check(_AREA, "key", SourceStatus.PROBLEM, f"the server does not report the key's owner: {error}")
    text = f"key {who.name!r}, {who.role}, {f'project {who.project}' if who.project else 'all projects'}"
    if who.role not in _WRITERS:
        advice = "an agent needs a key with the role writer"
        return Check(_AREA, "key", SourceStatus.PROBLEM, f"{text}: it may not write", advice)
    return Check(_AREA, "key", SourceStatus.OK, text)


def _check_clock(answer: Response, begin: int, end: int) -> Check:
    try:
        theirs = round(parsedate_to_datetime(answer.headers["date"]).timestamp() * 1000)
    except (KeyError, ValueError):
        return Check(_AREA, "clock", SourceStatus.LIMITED, "the server does not report its time")
    # The header has whole seconds, so any moment of that second agrees.
    ahead = begin - theirs - 999 if begin > theirs + 999 else min(end - theirs, 0)
    text = f"this clock says {format_iso(end)}, the server's {format_iso(theirs)}"
    if abs(ahead) < _SKEW_MS:
        return Check(_AREA, "clock", SourceStatus.OK, f"both clocks agree within {_SKEW_MS // 1000} s")
    text = f"{text}: {abs(ahead) / 1000:.0f} s {'ahead' if ahead > 0 else 'behind'}"
    status = SourceStatus.PROBLEM if ahead >= _REFUSED_MS else SourceStatus.LIMITED
    return Check(_AREA, "clock", status, text, "run a time daemon (chrony, systemd-timesyncd) on both machines")


def check_spool(machine: Machine, directory: Path, clock: Clock) -> Iterator[Check]:
    """Check the spool without changing it: waiting and refused frames, the process that uses it, free disk space."""
    yield _check_waiting(machine, directory, clock)
    place = next((one for one in (directory, *directory.parents) if one.is_dir()), Path("/"))
    if not os.access(place, os.W_OK | os.X_OK):
        text = f"{place} is not writable for this user"
        yield Check(_AREA, "disk", SourceStatus.PROBLEM, text, "give the agent its own folder with --spool")
        return
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    text = f"{free / 2**20:,.0f} MiB are free where the spool is ({place})"
    if free < _ROOM or (found.f_files and not found.f_favail) or found.f_flag & os.ST_RDONLY:
        why = "it is read-only" if found.f_flag & os.ST_RDONLY else f"a spool may take {_ROOM // 2**20} MiB"
        yield Check(
            _AREA, "disk", SourceStatus.PROBLEM, f"{text}; {why}", "free space, or give another folder with --spool"
        )
        return
    yield Check(_AREA, "disk", SourceStatus.OK, text)


def _check_waiting(machine: Machine, directory: Path, clock: Clock) -> Check:
    try:
        waiting = [path.stat() for path in directory.glob("*.frames")]
        refused = len(list((directory / "rejected").glob("*.frames")))
        lock = (directory / "lock").stat()
    except FileNotFoundError:
        return Check(_AREA, "spool", SourceStatus.OK, f"{directory} is empty: no agent has used it yet")
    except OSError as error:
        text = f"{directory} cannot be read: {error.strerror}"
        return Check(_AREA, "spool", SourceStatus.LIMITED, text, "run it as the agent's own user")
    holder = lock_holder(machine, lock)
    used = f"the agent with pid {holder} uses it" if holder else "no agent uses it now"
    size = sum(one.st_size for one in waiting)
    oldest = round(min((one.st_mtime for one in waiting), default=0) * 1000)
    text = f"{directory}: {size / 2**20:.1f} MiB wait, {used}"
    if refused:
        text += f", {refused} refused bodies are quarantined"
        advice = f"the reasons are in {directory}/rejected/*.txt"
        return Check(_AREA, "spool", SourceStatus.PROBLEM, text, advice)
    if waiting and not holder:
        return Check(_AREA, "spool", SourceStatus.LIMITED, text, "start the agent: it delivers them first")
    if waiting and clock.now_ms() - oldest > _OLD_MS:
        advice = "see the agent's log for the reason"
        return Check(_AREA, "spool", SourceStatus.PROBLEM, f"{text}, the oldest since {format_iso(oldest)}", advice)
    return Check(_AREA, "spool", SourceStatus.OK, text)


def lock_holder(machine: Machine, lock: os.stat_result) -> int:
    """Return the process that has locked a file, by the kernel's list; 0 without one."""
    place = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    for line in files.read_text(f"{machine.proc}/locks").splitlines():
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == place:
            return int(words[4])
    return 0
