"""Programs of the peers: the newest from Debian, fetched once into ``.cache/peers``, otherwise the installed ones."""

import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache" / "peers"
PROGRAMS = ("victoria-metrics", "prometheus")
SUITE = "sid"
_KEYRINGS = ("debian-archive-keyring.pgp", "debian-archive-keyring.gpg")


def prepare() -> None:
    """Fetch missing peers, and print which version of each is measured."""
    failure = ""
    if any(not _fetched(name).exists() for name in PROGRAMS):
        try:
            fetch()
        except (OSError, subprocess.CalledProcessError, LookupError) as error:
            failure = f" (Debian {SUITE} could not be fetched: {_reason(error)})"
    for name in PROGRAMS:
        path = program(name)
        if path is None:
            print(f"{name}: not measured, it is neither fetched nor installed{failure}", flush=True)
        else:
            origin = f"from Debian {SUITE}" if path == _fetched(name) else f"the installed one{failure}"
            print(f"{name}: version {version(name)} is measured, {origin}", flush=True)


def fetch() -> None:
    """Download and unpack the peers with apt.

    Lists and caches of apt go to ``CACHE``, so the installed packages do not change. Raises LookupError if the machine
    has no mirror of Debian.
    """
    for folder in ("lists/partial", "apt/archives/partial", "root", "versions"):
        (CACHE / folder).mkdir(parents=True, exist_ok=True)
    keys = [f"/usr/share/keyrings/{name}" for name in _KEYRINGS if Path("/usr/share/keyrings", name).exists()]
    signed = f"[signed-by={keys[0]}] " if keys else ""
    (CACHE / "peers.list").write_text(f"deb {signed}{_mirror()} {SUITE} main\n")
    _run(*_apt(), "update")
    _run(*_apt(), "download", *PROGRAMS)
    for name in PROGRAMS:
        package = next(CACHE.glob(f"{name}_*.deb"))
        _run("dpkg-deb", "-x", str(package), str(CACHE / "root"))
        (CACHE / "versions" / name).write_text(_run("dpkg-deb", "-f", str(package), "Version"))
        package.unlink()


def program(name: str) -> Path | None:
    """Return the path of a peer's program, or None if the peer is neither fetched nor installed."""
    if _fetched(name).exists():
        return _fetched(name)
    installed = shutil.which(name)
    return Path(installed) if installed else None


@functools.cache
def version(name: str) -> str:
    """Return the upstream version of ``program``, empty if unknown."""
    path = program(name)
    if path is None:
        return ""
    if path == _fetched(name):
        return _upstream((CACHE / "versions" / name).read_text())
    try:
        return _upstream(_run("dpkg-query", "-W", "-f", "${Version}", name))
    except (OSError, subprocess.CalledProcessError):
        return ""


def _upstream(debian: str) -> str:
    return debian.strip().rpartition(":")[2].partition("-")[0].partition("+")[0]


def _fetched(name: str) -> Path:
    return CACHE / "root" / "usr" / "bin" / name


def _mirror() -> str:
    """Return the address of the mirror from which apt gets this machine's release. Raises LookupError without one."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    listed = _run("apt-get", "indextargets", "--no-release-info", "--format", "$(RELEASE) $(REPO_URI)")
    for line in listed.splitlines():
        suite, _, address = line.partition(" ")
        if suite == release:
            return address
    raise LookupError(f"apt knows no mirror of {release or 'this release'}")


def _apt() -> list[str]:
    options = {
        "Dir::Etc::sourcelist": CACHE / "peers.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": CACHE / "lists",
        "Dir::Cache": CACHE / "apt",
        "Acquire::Check-Valid-Until": "false",  # a mirror may be out of date
        "APT::Sandbox::User": "root",
    }
    return ["apt-get", "-qq", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]


def _run(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=CACHE, env=environment).stdout


def _reason(error: Exception) -> str:
    output = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else ""
    return output.splitlines()[-1] if output else str(error)


if __name__ == "__main__":
    prepare()
