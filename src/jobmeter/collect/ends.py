"""Reads the control groups of a process at the moment of its end: soon after, they are gone with what they counted.

Whoever made a group (Slurm's step daemon, a container's runtime) removes it when its last process has ended, within
milliseconds. A process's pidfd becomes readable as it ends: https://man7.org/linux/man-pages/man2/pidfd_open.2.html.
"""

import logging
import os
import select
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Protocol

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupKey
from jobmeter.collect.cgroup.usage import Usage
from jobmeter.collect.discover.table import Process
from jobmeter.collect.process.stat import Key, read_stat

MOST = 4_096
"""Processes that are watched at once; each costs a file descriptor."""

_log = logging.getLogger(__name__)


class Reads(Protocol):
    """The part of ``jobmeter.collect.cgroup.reader.GroupReader`` that is used here."""

    def read(self, groups: Mapping[str, str]) -> Usage:
        """See ``GroupReader.read``."""
        ...


@dataclass(frozen=True, slots=True)
class Final:
    """What a group of a replica had used when one of its processes ended."""

    owner: Owner
    groups: GroupKey
    usage: Usage


@dataclass(frozen=True, slots=True)
class _Watched:
    descriptor: int
    owner: Owner
    groups: GroupKey


class EndWatch:
    """Watches the processes that it is given. ``watch`` and ``drain`` belong to one thread; reading has its own."""

    def __init__(self, reader: Reads) -> None:
        self._reader = reader
        self._lock = Lock()
        self._watched: dict[Key, _Watched] = {}
        self._by_descriptor: dict[int, Key] = {}
        self._finals: SimpleQueue[Final] = SimpleQueue()
        self._poll: select.epoll | None = None

    def watch(self, processes: Iterable[Process]) -> None:
        """From now on watch those of these processes that have groups of their own, and no others."""
        wanted = {
            process.stat.key: process for process in processes if process.member.groups and not process.stat.ended
        }
        with self._lock:
            for key in [key for key in self._watched if key not in wanted]:
                # One that has ended is read by the thread, which may not have come to it yet.
                if not _has_ended(self._watched[key].descriptor):
                    self._drop(key)
            fresh = [process for key, process in wanted.items() if key not in self._watched]
            for process in fresh[: max(MOST - len(self._watched), 0)]:
                self._add(process)

    def drain(self) -> list[Final]:
        """What was read since the last call, oldest first."""
        finals: list[Final] = []
        while True:
            try:
                finals.append(self._finals.get_nowait())
            except Empty:
                return finals

    def _add(self, process: Process) -> None:
        key = process.stat.key
        try:
            descriptor = os.pidfd_open(key.pid)
        except OSError as error:
            _log.debug("the end of process %d is not watched: %s", key.pid, error)
            return
        stat = read_stat("/proc", key.pid)
        if stat is None or stat.key != key:
            os.close(descriptor)  # the number is another process's by now
            return
        self._watched[key] = _Watched(descriptor, process.member.owner, tuple(sorted(process.member.groups.items())))
        self._by_descriptor[descriptor] = key
        self._started().register(descriptor, select.EPOLLIN)

    def _started(self) -> select.epoll:
        if self._poll is None:
            self._poll = select.epoll()
            Thread(target=self._read_ends, args=(self._poll,), name="ends", daemon=True).start()
        return self._poll

    def _read_ends(self, poll: select.epoll) -> None:
        while True:
            for descriptor, _ in poll.poll():
                with self._lock:
                    key = self._by_descriptor.get(descriptor)
                    watched = self._watched.get(key) if key else None
                if key is None or watched is None:
                    continue
                self._finals.put(Final(watched.owner, watched.groups, self._reader.read(dict(watched.groups))))
                with self._lock:
                    if self._watched.get(key) is watched:
                        self._drop(key)

    def _drop(self, key: Key) -> None:
        watched = self._watched.pop(key)
        del self._by_descriptor[watched.descriptor]
        os.close(watched.descriptor)  # which takes it out of the poll, too


def _has_ended(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
