"""Create the sources of system logs of this machine: only this module names them."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.clock import SampleClock, read_elapsed_ns
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.syslog.journal import JournalSource, has_journal
from jobmeter.collect.syslog.kernel import DEVICE, KernelReader, KernelSource
from jobmeter.collect.syslog.opening import allow_open_files
from jobmeter.collect.syslog.reader import LogSettings, SystemLogReader
from jobmeter.collect.syslog.successors import MOST_WAITING_IN_ALL
from jobmeter.collect.syslog.watch import MOST_FILES, FileWatch
from jobmeter.model.time import NS_PER_MS

if TYPE_CHECKING:
    from jobmeter.collect.syslog.base import SystemLogSource

_OPEN_FILES = MOST_FILES + MOST_WAITING_IN_ALL + 1_024
_log = logging.getLogger(__name__)


def make_system_logs(
    settings: LogSettings | None,
    place: NodeIdentity,
    outbox: Outbox,
    clock: SampleClock,
    *,
    owner_of: Callable[[int], Owner | None],
    state: Path | None,
    kernel: KernelReader,
) -> SystemLogReader | None:
    """Create the reader of the configured system logs that this machine has; None without any."""
    if settings is None:
        return None
    sources: list[SystemLogSource] = []
    if settings.kernel and _can_read(kernel):
        sources.append(KernelSource(lambda: clock.now_ms() * NS_PER_MS, read_elapsed_ns, reader=kernel))
    if settings.journal and has_journal():
        sources.append(JournalSource(kernel=settings.kernel and not sources))
    if not sources and not settings.files:
        return None
    if settings.files:
        allow_open_files(_OPEN_FILES)
    watch = FileWatch(settings.files)
    return SystemLogReader(sources, watch, place, outbox, clock, settings.lines_a_second, owner_of, state)


def _can_read(kernel: KernelReader) -> bool:
    """Return True if the device opens: with ``kernel.dmesg_restrict`` its mode does not tell."""
    try:
        kernel.find_newest()
    except OSError as error:
        _log.info("%s cannot be read (%s): kernel lines are read from the journal instead, if present", DEVICE, error)
        return False
    return True
