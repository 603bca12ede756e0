"""Programs that some tests start: the list, and `make programs`, which installs missing ones.

The run skips a test without its program, and its summary says so. This module imports only the standard library.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


@dataclass(frozen=True)
class Program:
    """Program, its Debian package, and required files as patterns below ``/``."""

    name: str
    package: str
    files: tuple[str, ...] = ()
    plugin: bool = False

    def find(self) -> str | None:
        """Return the path of the program; None if it or a required file is missing.

        A plug-in consists of its files alone.
        """
        whole = all(any(Path("/").glob(pattern)) for pattern in self.files)
        if self.plugin:
            return next((str(path) for pattern in self.files for path in Path("/").glob(pattern)), None)
        return shutil.which(self.name, path=_PATH) if whole else None

    @property
    def reason(self) -> str:
        """Reason for skipping a test that needs the program."""
        return f"{self.name} is not installed (Debian's package {self.package}): make programs"


def _go(library: str) -> tuple[str, ...]:
    """Return the file pattern of Debian's source package of a Go library."""
    return (f"usr/share/gocode/src/github.com/{library}",)


PROGRAMS = {
    program.name: program
    for program in (
        Program("amtool", "prometheus-alertmanager"),
        Program("auth_jwt", "slurm-wlm-jwt-plugin", ("usr/lib/*/slurm*/auth_jwt.so",), plugin=True),
        Program("cc", "gcc"),
        Program("chromium", "chromium"),
        Program("collectd", "collectd-core", ("usr/lib/collectd/write_tsdb.so",)),
        Program("curl", "curl"),
        Program("go", "golang-go"),
        Program("go-sprig", "golang-github-masterminds-sprig-dev", _go("Masterminds/sprig"), plugin=True),
        Program("go-yaml", "golang-github-ghodss-yaml-dev", _go("ghodss/yaml"), plugin=True),
        Program("java", "zookeeper", ("usr/share/java/zookeeper.jar",)),
        Program("mariadbd", "mariadb-server"),
        Program("mpiexec.hydra", "mpich"),
        Program("mpirun.openmpi", "openmpi-bin"),
        Program("munged", "munge"),
        Program("pg_ctl", "postgresql"),
        Program("prometheus", "prometheus"),
        Program("prometheus-alertmanager", "prometheus-alertmanager"),
        Program("prometheus-node-exporter", "prometheus-node-exporter"),
        Program("promtool", "prometheus"),
        Program("setpriv", "util-linux"),
        Program("slurmctld", "slurm-wlm"),
        Program("slurmd", "slurmd"),
        Program("slurmdbd", "slurmdbd"),
        Program("slurmrestd", "slurmrestd"),
        Program("squeue", "slurm-client"),
        Program("systemd-analyze", "systemd"),
        Program("vmagent", "victoria-metrics"),
        Program("vmalert", "victoria-metrics"),
        Program("zsh", "zsh"),
    )
}


def postgresql() -> Path | None:
    """Return the folder of PostgreSQL's programs, which Debian keeps off the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("pg_ctl", path=os.pathsep.join((_PATH, *map(str, places))))
    return None if found is None else Path(found).resolve().parent


def find(name: str) -> str | None:
    """Return the path of a program of ``PROGRAMS``; None if it is missing."""
    if name == "pg_ctl":
        folder = postgresql()
        return None if folder is None else str(folder / name)
    return PROGRAMS[name].find()


def missing(names: Iterable[str] = PROGRAMS) -> list[Program]:
    """Return the programs that are not installed."""
    return [PROGRAMS[name] for name in names if find(name) is None]


def main() -> int:
    """Install missing programs if possible, else print how. Return 1 if a program is still missing."""
    absent = missing()
    if not absent:
        print("every program that tests start is installed")
        return 0
    packages = sorted({program.package for program in absent})
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if os.geteuid() or shutil.which("apt-get") is None:
        print(f"missing: {', '.join(program.name for program in absent)}. As root, on Debian: {' '.join(install)}")
        return 1
    # Prevent packages from starting services: tests start their own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["apt-get", "update"], install):
        subprocess.run([*command, "-qq"], check=False, env=environment, stdout=subprocess.DEVNULL)
    for program in missing():
        print(program.reason.replace(": make programs", ": its tests are skipped"))
    return 1 if missing() else 0


if __name__ == "__main__":
    sys.exit(main())
