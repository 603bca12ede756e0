"""Places of the socket on which an agent or a run receives the numbers of programs. Standard library only.

A program sends to ``JOBMETER_SOCKET`` if set, else to every socket in the folders. Each receiver discards the numbers
of processes that it does not measure.
"""

import os
import stat

VARIABLE = "JOBMETER_SOCKET"
"""Variable with the path of the socket. A leading ``@`` names Linux's abstract namespace instead."""
SHARED_FOLDER = "/run/jobmeter"
AGENT_SOCKET = "agent.sock"
MOST_SOCKETS = 8
"""Most sockets of the folders that a program sends to."""
MOST_BYTES = 60_000
"""Most bytes of a message: the kernel's default buffer of a socket holds several."""


def find_own_folder(user: int) -> str:
    """Return the folder of a user's sockets: the shared one for root."""
    if user == 0:
        return SHARED_FOLDER
    runtime = f"/run/user/{user}"
    return f"{runtime}/jobmeter" if os.path.isdir(runtime) else f"/tmp/jobmeter-{user}"  # noqa: PTH112, S108


def is_safe(folder: str, user: int) -> bool:
    """Return True if only this user and root could have made the folder and can change it."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid in {0, user} and not found.st_mode & 0o022


def list_sockets(value: str | None, user: int) -> list[str]:
    """Return the addresses to send to, for the value of ``JOBMETER_SOCKET``. An abstract one begins with a zero."""
    if value:
        return [make_address(value)]
    own = find_own_folder(user)
    # Nobody but root can make the shared folder, which may belong to the agent's own user.
    folders = [SHARED_FOLDER, *([own] if own != SHARED_FOLDER and is_safe(own, user) else [])]
    found: list[str] = []
    for folder in folders:
        try:
            found += [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".sock")]  # noqa: PTH208
        except OSError:
            continue
    return found[:MOST_SOCKETS]


def make_address(value: str) -> str:
    """Convert a value of ``JOBMETER_SOCKET`` to the address of a socket."""
    return f"\0{value[1:]}" if value.startswith("@") else value
