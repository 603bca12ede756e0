"""Read the control groups of a process at its end, before they are removed with their counts.

The creator of a group (Slurm's step daemon, a container's runtime) removes it within milliseconds of its last process's
end. The pidfd of a process becomes readable at its end: pidfd_open(2).
"""

import logging
import os
import select
from collections.abc import Iterable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupKey, group_key
from jobmeter.collect.cgroup.job_group import JobGroupReader, JobUsage
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import CgroupUsage
from jobmeter.collect.discover.member import Member, Process
from jobmeter.collect.process.stat import Key, read_stat

MOST = 4_096
"""Most processes that are watched together; each needs a file descriptor."""

_log = logging.getLogger(__name__)


_LOWEST_REAL_TIME = os.sched_param(1)
"""Priority of the reading thread: before every normal program.

On a busy machine it would wait for a processor as long as the remover of the groups does. Each end takes less than a
millisecond.
"""


@dataclass(frozen=True, slots=True)
class FinalUsage:
    """Usage of a replica's group when one of its processes ended, and of its job, if known."""

    owner: Owner
    groups: GroupKey
    usage: CgroupUsage
    job_groups: GroupKey = ()
    job_usage: JobUsage | None = None


def take_precedence() -> bool:
    """Give this thread priority over other programs. False without the right (CAP_SYS_NICE)."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, _LOWEST_REAL_TIME)
    except OSError as error:
        _log.debug("the ends of processes are read without priority: %s", error)
        return False
    return True


class EndWatch:
    """Reads the groups of processes at their ends, in a thread.

    ``watch`` and ``drain`` are for one thread, ``include`` for any.
    """

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader
        self.job_groups = JobGroupReader(reader)
        self._lock = Lock()
        self._watched: dict[Key, tuple[int, Member]] = {}
        """Pidfd and membership of each process."""
        self._by_descriptor: dict[int, Key] = {}
        self._finals: SimpleQueue[FinalUsage] = SimpleQueue()
        self._poll: select.epoll | None = None

    def watch(self, processes: Iterable[Process]) -> None:
        """Watch exactly the processes that have groups of their own."""
        targets = {
            process.stat.key: process for process in processes if process.member.groups and not process.stat.ended
        }
        with self._lock:
            for key in [key for key in self._watched if key not in targets]:
                # The thread still has to read a process that has ended.
                if not _has_ended(self._watched[key][0]):
                    self._drop(key)
            for key in self._watched.keys() & targets.keys():
                # Its groups may be created, and its task known, only after it was first found.
                self._watched[key] = self._watched[key][0], targets[key].member
            fresh = [process for key, process in targets.items() if key not in self._watched]
            for process in fresh[: max(MOST - len(self._watched), 0)]:
                self._add(process)

    def include(self, process: Process) -> None:
        """Watch one more process, until the next call of ``watch``."""
        with self._lock:
            if process.member.groups and process.stat.key not in self._watched and len(self._watched) < MOST:
                self._add(process)

    def drain(self) -> list[FinalUsage]:
        """Return the readings since the last call, oldest first."""
        return [self._finals.get_nowait() for _ in range(self._finals.qsize())]

    def _add(self, process: Process) -> None:
        key = process.stat.key
        try:
            descriptor = os.pidfd_open(key.pid)
        except OSError as error:
            _log.debug("the end of process %d is not watched: %s", key.pid, error)
            return
        stat = read_stat("/proc", key.pid)
        if stat is None or stat.key != key:
            os.close(descriptor)  # the number belongs to another process by now
            return
        self._watched[key] = descriptor, process.member
        self._by_descriptor[descriptor] = key
        self._start_polling().register(descriptor, select.EPOLLIN)

    def _start_polling(self) -> select.epoll:
        if self._poll is None:
            self._poll = select.epoll()
            Thread(target=self._read_ends, args=(self._poll,), name="ends", daemon=True).start()
        return self._poll

    def _read_ends(self, poll: select.epoll) -> None:
        take_precedence()
        while True:
            for descriptor, _ in poll.poll():
                with self._lock:
                    key = self._by_descriptor.get(descriptor)
                    watched = self._watched.get(key) if key else None
                if key is None or watched is None:
                    continue
                self._finals.put(self._read_final_usage(watched[1]))
                with self._lock:
                    if self._by_descriptor.get(descriptor) == key:
                        self._drop(key)

    def _read_final_usage(self, member: Member) -> FinalUsage:
        usage = self._reader.read(member.groups)  # first: it may be gone in a moment
        job = group_key(member.job_groups)
        return FinalUsage(
            member.owner, group_key(member.groups), usage, job, self.job_groups.read(job) if job else None
        )

    def _drop(self, key: Key) -> None:
        descriptor, _ = self._watched.pop(key)
        del self._by_descriptor[descriptor]
        os.close(descriptor)  # which also removes it from the poll


def _has_ended(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
