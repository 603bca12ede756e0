"""Tests of the systemd journal, read with its own reader and written by its own daemon."""

import os
import shutil
import socket
import struct
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.waiting import wait_until
from tests.unit.collect.log_node import Node, lines_in

from jobmeter.client.transport import Transport
from jobmeter.collect.agent import Agent
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.kernel import KernelWatch
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.syslog import kernel, make
from jobmeter.collect.syslog.journal import JournalSource
from jobmeter.collect.syslog.kernel import KernelLog, KernelReader
from jobmeter.collect.syslog.reader import LogCheckpoint, LogSettings, SourcePosition
from jobmeter.diagnose.kernel import query_of
from jobmeter.diagnose.registry import list_rules
from jobmeter.model.log_tree import matches
from jobmeter.model.time import SystemClock

_JOURNALD = "/usr/lib/systemd/systemd-journald"


@pytest.fixture
def journal():
    """Yield the namespace of a separate journal, written by the real daemon. It has the kernel's lines, too."""
    if os.geteuid() or not Path(_JOURNALD).exists() or shutil.which("journalctl") is None:
        pytest.skip("no systemd-journald that may be run here")
    name = f"jm{os.getpid()}"
    place = Path(f"/run/systemd/journal.{name}/dev-log")
    before = set(Path("/var/log/journal").glob("*")) | set(Path("/run/log/journal").glob("*"))
    settings = Path(f"/run/systemd/journald@{name}.conf.d")
    settings.mkdir(parents=True)
    (settings / "kernel.conf").write_text("[Journal]\nReadKMsg=yes\n")
    with subprocess.Popen([_JOURNALD, name], stderr=subprocess.DEVNULL) as daemon:
        try:
            wait_until(place.exists, "the journal's socket")
            yield name
        finally:
            daemon.terminate()
    shutil.rmtree(settings)
    for folder in (set(Path("/var/log/journal").glob("*")) | set(Path("/run/log/journal").glob("*"))) - before:
        if folder.name.endswith(name):
            shutil.rmtree(folder)
    shutil.rmtree(place.parent, ignore_errors=True)


def say(name, *texts):
    with socket_of(name) as out:
        for text in texts:
            out.send(b"<27>app[77]: " + text)


def socket_of(name):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.connect(f"/run/systemd/journal.{name}/dev-log")
    return made


def test_the_journal_is_followed_and_goes_on_after_a_restart(journal, tmp_path):
    say(journal, b"before the first start")
    shown = ["journalctl", f"--namespace={journal}", "--quiet", "--identifier=app"]
    wait_until(lambda: b"before" in subprocess.run(shown, capture_output=True, check=False).stdout, "the first line")
    owner = {os.getpid(): Owner("job-7", "worker-0")}
    node = Node(tmp_path, sources=[lambda: JournalSource([f"--namespace={journal}"])], owner_of=owner.get)
    node.rounds(2)
    found: list[Any] = []

    def arrived(count):
        found.extend(line for line in node.rounds(1) if line.tag == "app")
        return len(found) >= count

    say(journal, *(b"line %d" % at for at in range(50)), b"not \xff text")
    wait_until(lambda: arrived(51), "lines of the journal")
    node.reader.stop()
    lines_in(node.outbox)
    say(journal, b"while it was away")
    node.start()
    wait_until(lambda: arrived(52), "the line that was written meanwhile")
    assert [line.text for line in found[:50]] == [f"line {at}" for at in range(50)]
    assert [line.text for line in found[50:]] == ["not \ufffd text", "while it was away"]
    assert {(line.facility, line.severity, line.stream) for line in found} == {("daemon", 3, "journal")}
    assert {line.job for line in found} == {"job-7"}
    node.reader.stop()
    # A reading whose end position is gone gives the same lines as one up to the last line.
    source = JournalSource([f"--namespace={journal}"])
    whole = source.read({"cursor": ""}, {"cursor": "gone"})
    assert whole is not None
    part = source.read({"cursor": ""}, whole.end)
    assert part is not None
    assert part.entries == whole.entries
    assert part.entries[-1].text == "while it was away"
    source.close()


def shown_by_journalctl(name, *matched):
    """Return the messages that match, as journalctl itself shows them."""
    command = ["journalctl", f"--namespace={name}", "--quiet", "--no-pager", "--all", "--output=json", *matched]
    lines = subprocess.run(command, capture_output=True, check=True).stdout.splitlines()
    return [str(msgspec.json.decode(line)["MESSAGE"]) for line in lines]


def wait_for_the_kernel_s_lines(name):
    """Wait for the daemon's first line, and for the kernel's lines that it reads at its start."""
    wait_until(lambda: shown_by_journalctl(name, "_TRANSPORT=driver"), "the daemon's first line")
    wait_until(lambda: shown_by_journalctl(name, "_TRANSPORT=kernel"), "the kernel's lines")


def read_whole(name, *, kernel):
    source = JournalSource([f"--namespace={name}"], kernel=kernel)
    reading = source.read({"cursor": ""}, {"cursor": "none, so up to the end"})
    source.close()
    return reading.entries if reading else []


def test_lines_of_the_kernel_are_the_kernel_s_in_the_journal_too(journal):
    wait_for_the_kernel_s_lines(journal)
    expected = shown_by_journalctl(journal, "_TRANSPORT=kernel", "SYSLOG_FACILITY=0")
    found = [entry for entry in read_whole(journal, kernel=True) if entry.facility == "kern"]
    assert [entry.text for entry in found][: len(expected)] == expected
    assert expected
    without = read_whole(journal, kernel=False)
    assert without
    assert {entry.facility for entry in without} == {"daemon"}


def test_a_user_s_program_does_not_speak_for_the_kernel(journal):
    users = {"from root": 0, "NVRM: Xid (PCI:0000:3b:00): 79": 65534}
    for text, user in users.items():
        entry = f"MESSAGE={text}\nSYSLOG_FACILITY=0\nSYSLOG_IDENTIFIER=test\nPRIORITY=3\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.connect(f"/run/systemd/journal.{journal}/socket")
            sender = struct.pack("3i", os.getpid(), user, user)
            out.sendmsg([entry.encode()], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, sender)])
    wait_until(lambda: len(shown_by_journalctl(journal, "SYSLOG_IDENTIFIER=test")) == 2, "both lines")
    found = {entry.text: entry.facility for entry in read_whole(journal, kernel=True) if entry.tag == "test"}
    assert found == {"from root": "kern", "NVRM: Xid (PCI:0000:3b:00): 79": "user"}


class Machine:
    """Machine with the test's journal, with or without a device of the kernel's log."""

    def __init__(self, journal, folder, monkeypatch):
        real = shutil.which("journalctl")
        (folder / "journalctl").write_text(f'#!/bin/sh\nexec {real} --namespace={journal} "$@"\n')
        (folder / "journalctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self._folder = folder

    def lines(self, device, settings):
        """Return the lines for an agent that has not read the journal yet."""
        kernel = KernelReader(partial(KernelLog, device))
        state = self._folder / "logs.json"
        state.write_bytes(msgspec.json.encode(LogCheckpoint({"journal": SourcePosition({"cursor": ""})})))
        outbox, place, clock = Outbox(None), NodeIdentity("n1", project="default"), SampleClock(SystemClock())
        reader = make.make_system_logs(
            settings, place, outbox, clock, owner_of=lambda pid: None, state=state, kernel=kernel
        )
        assert reader is not None
        found: list[Any] = []

        def has_read_the_last_line():
            reader.round()
            found.extend(lines_in(outbox))
            return any(line.text == "the last line" for line in found)

        wait_until(has_read_the_last_line, "the journal's last line")
        reader.stop()
        return [*found, *lines_in(outbox)]


@pytest.fixture
def machine(journal, tmp_path, monkeypatch):
    wait_for_the_kernel_s_lines(journal)
    say(journal, b"the last line")
    wait_until(lambda: "the last line" in shown_by_journalctl(journal), "the last line")
    return Machine(journal, tmp_path, monkeypatch)


def test_without_the_device_the_journal_has_the_lines_of_the_kernel_that_rules_look_for(machine, tmp_path):
    lines = machine.lines(tmp_path / "none", LogSettings())
    found = [line for line in lines if line.facility == "kern"]
    assert found
    assert {line.stream for line in found} == {"journal"}
    xid = msgspec.structs.replace(found[0], text="NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.")
    assert matches(query_of(list_rules()), xid)


def test_a_device_that_shows_itself_and_does_not_open_is_no_source(machine, tmp_path):
    # Like /dev/kmsg under kernel.dmesg_restrict: the mode allows reading, but opening fails. A socket does the same.
    device = tmp_path / "kmsg"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(device))
        assert os.access(device, os.R_OK)
        lines = machine.lines(device, LogSettings())
    assert "kern" in {line.facility for line in lines}


def test_no_line_of_the_kernel_is_read_where_that_is_turned_off(machine, tmp_path):
    for device in (kernel.DEVICE, tmp_path / "none"):
        lines = machine.lines(device, LogSettings(kernel=False))
        assert lines
        assert [line.text for line in lines if line.facility == "kern"] == []


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg may not be read here")
@pytest.mark.parametrize("reads", [True, False])
def test_an_agent_that_reads_no_kernel_log_does_not_open_its_device(reads):
    before = opened()
    settings = LogSettings(kernel=reads, journal=False)
    agent = Agent(NodeIdentity("n1"), lambda: Transport("", ""), SampleClock(SystemClock()), None, 1000, settings)
    assert opened() - before == reads
    del agent


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="/dev/kmsg may not be read here")
def test_lines_and_events_of_the_kernel_s_log_are_read_by_one_descriptor():
    before, kernel = opened(), KernelReader()
    place, clock = NodeIdentity("n1"), SampleClock(SystemClock())
    watch = KernelWatch(place, kernel)
    settings = LogSettings(journal=False)
    logs = make.make_system_logs(
        settings, place, Outbox(None), clock, owner_of=lambda _pid: None, state=None, kernel=kernel
    )
    assert logs is not None
    for _ in range(2):
        logs.round()
        watch.take_records(clock.now_ms())
    assert opened() - before == 1
    logs.stop()
    assert opened() == before


def opened():
    """Count this process's descriptors of the kernel's log."""
    links = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return links.count("/dev/kmsg")
