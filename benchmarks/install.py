"""Finding the peers, which come from Debian."""

import os
import shutil
import subprocess
import sys

PROGRAMS = ("victoria-metrics", "prometheus", "wrk")
COMMAND = ("apt-get", "install", "--no-install-recommends", "-y", *PROGRAMS)


def installed(program: str) -> bool:
    """True when the program can be started."""
    return shutil.which(program) is not None


def look(*, install: bool) -> None:
    """Say what is missing and how to get it; with ``install`` get it. What stays missing has an empty column."""
    missing = [name for name in PROGRAMS if not installed(name)]
    if missing and install:
        # The services that the packages would start are not wanted, only the programs.
        subprocess.run(COMMAND, check=True, env={**os.environ, "RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"})
        missing = [name for name in PROGRAMS if not installed(name)]
    if missing:
        print(f"not installed, so what needs them is left out: {', '.join(missing)}", file=sys.stderr)
        print(f"to install them: {' '.join(COMMAND)} (or --install)", file=sys.stderr)


def version(program: str) -> str:
    """What Debian calls its version, without the packaging's part; empty where that cannot be told."""
    if shutil.which("dpkg-query") is None:
        return ""
    found = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", program], capture_output=True, text=True, check=False
    )
    return found.stdout.partition(":")[2].partition("+")[0] or found.stdout.partition("+")[0].partition("-")[0]
