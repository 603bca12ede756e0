"""Query NCCL's RAS, which knows the processes of a job that do not answer, and the ranks that lag behind.

The protocol of ``ncclras`` is lines of text over TCP:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

import ipaddress
import os
import re
import socket
import time
from collections.abc import Iterable
from itertools import zip_longest

from jobmeter.collect import files
from jobmeter.collect.stacks.python import clip
from jobmeter.model.stacks import MOST_NOTES

DEFAULT = "localhost:28028"
_PROTOCOL = 2
_TIMEOUT = 5
"""Seconds that NCCL waits for its other processes, as with ``ncclras``."""
_SECONDS = 10.0
_MOST = 256 * 1024
_LISTENS = "0A"
_SECTIONS = ("Errors", "Warnings")
_HEADING = re.compile(r"^(?:#\d+-\d+ \([0-9a-f]+\) )?[A-Z]{3,}(?:[ ,|]+[A-Z]{3,})*$")
OTHER_NETWORK = "no report of NCCL's RAS: the job has a network namespace of its own; run ncclras -v inside of it"


def query_ras(pids: Iterable[int], address: str, proc_root: str = "/proc") -> tuple[list[str], str]:
    """Return the problems that RAS reports, and the reason if there is no report; both empty if RAS does not listen.

    ``address`` is the value of NCCL_RAS_ADDR. Only a socket of one of the processes is used, and only by a loopback
    address, so that a job cannot direct the agent elsewhere.
    """
    host, port = _place(address)
    if not port or host is None:
        return [], ""
    for pid in pids:
        if not _listens(proc_root, pid, port):
            continue
        if _namespace(proc_root, str(pid)) != _namespace(proc_root, "self"):
            return [], OTHER_NETWORK
        try:
            return parse_report(_report(host, port)), ""
        except OSError as error:
            return [], clip(f"no report of NCCL's RAS at {host}:{port}: {error}")
    return [], ""


def parse_report(text: str) -> list[str]:
    """Return the entries of the sections of errors and warnings, each as one line."""
    found: list[str] = []
    inside = False
    lines = [line.strip() for line in text.splitlines()]
    for stripped, following in zip_longest(lines, lines[1:], fillvalue=""):
        if following.startswith("=="):
            inside = stripped in _SECTIONS
        elif inside and stripped and not stripped.startswith("=="):
            if _HEADING.match(stripped) or not found:
                found.append(stripped)
            else:
                separator = ": " if _HEADING.match(found[-1]) else "; "
                found[-1] += separator + stripped
    return [clip(one) for one in found[:MOST_NOTES]]


def _place(address: str) -> tuple[str | None, int]:
    """Return the host and the port of an address; None for a host other than this machine."""
    host, _, port = (address or DEFAULT).rpartition(":")
    host = host.strip("[]") or "localhost"
    if host != "localhost":
        try:
            if not ipaddress.ip_address(host).is_loopback:
                return None, 0
        except ValueError:
            return None, 0
    return host, int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0


def _listens(proc_root: str, pid: int, port: int) -> bool:
    """Return True if the process listens on a TCP port."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        for line in files.read_text(f"{proc_root}/{pid}/net/{name}").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{words[9]}]")
    if not inodes:
        return False
    try:
        with os.scandir(f"{proc_root}/{pid}/fd") as entries:
            return any(files.read_link_target(entry.path) in inodes for entry in entries)
    except OSError:
        return False


def _namespace(proc_root: str, process: str) -> str:
    return files.read_link_target(f"{proc_root}/{process}/ns/net")


def _report(host: str, port: int) -> str:
    """Return the text of a verbose status. Raises OSError."""
    end = time.monotonic() + _SECONDS
    with socket.create_connection((host, port), timeout=2.0) as connection:
        connection.settimeout(_SECONDS)
        reader = connection.makefile("rb")
        connection.sendall(f"CLIENT PROTOCOL {_PROTOCOL}\n".encode())
        if not reader.readline(1024).upper().startswith(b"SERVER PROTOCOL "):
            raise OSError("the program that listens there does not speak its protocol")
        connection.sendall(f"TIMEOUT {_TIMEOUT}\n".encode())
        if reader.readline(1024).strip().upper() != b"OK":
            raise OSError("it refused a timeout")
        connection.sendall(b"VERBOSE STATUS\n")
        found = bytearray()
        while len(found) < _MOST and time.monotonic() < end:
            part = reader.readline(8192)
            if not part:
                break
            found += part
    return found.decode(errors="replace")
