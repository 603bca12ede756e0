"""Starts a real Slurm with accounting on 127.0.0.1: munge, MariaDB, slurmdbd, slurmctld and two slurmd."""

import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.programs import find
from tests.support.clusters import free_ports, running
from tests.support.needs import needs
from tests.support.waiting import wait_until

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "setpriv", "squeue")
V1 = Path("/sys/fs/cgroup/freezer").is_dir()
"""True on a machine with cgroup version 1: only there slurmd runs without systemd."""

_COLUMNS = (
    "JobIDRaw,JobID,JobName,User,Account,Partition,State,ExitCode,Submit,Start,End,NodeList,ReqCPUS,TotalCPU,ReqMem"
)

_TRACKING = """\
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
PrologFlags=Alloc,Contain
"""
_WITHOUT = """\
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
"""


def needs_slurm() -> None:
    """Skip the calling test if no cluster can be started."""
    for name in PROGRAMS:
        needs(name)
    if os.geteuid():
        pytest.skip("a Slurm cluster is started by root alone")


class Slurm:
    """Running cluster. Its node names are unique, so that two clusters share no cgroup."""

    def __init__(self, folder: Path, name: str = "t", first: int = 0) -> None:
        """Prepare a cluster.

        ``first`` is the number of its first job; 0 chooses one that no other running cluster uses.
        """
        self.folder = folder
        self.name = name
        # An agent sees every cluster of the machine, so two concurrent clusters must not use the same job numbers.
        self.first = first or os.getpid() % 60_000 * 1_000 + 1
        self.nodes = [f"{name}{os.getpid()}n{number}" for number in (1, 2)]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SACCT", "SQUEUE"))},
            "SLURM_CONF": str(folder / "etc/slurm.conf"),
        }
        self.jobs = folder / "jobs"
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for name in ("etc", "state", "log", "run", "munge", "maria", "jobs", "dev"):
            (self.folder / name).mkdir()
        self.jobs.chmod(0o777)
        ports = free_ports(5)
        self._start_munge()
        self._start_database(ports[0])
        _write_configuration(self, ports)
        self._daemon("slurmdbd", "-D")
        wait_until(lambda: _listens(ports[1]), "slurmdbd")
        self.command("sacctmgr", "-i", "add", "cluster", self.name)
        self._daemon("slurmctld", "-D")
        for node in self.nodes:
            self._daemon("slurmd", "-D", "-N", node)
        wait_until(lambda: self.command("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2", "idle nodes")

    def stop(self) -> None:
        """Cancel all jobs, wait for their end, and stop the daemons, newest first."""
        if (self.folder / "etc/slurm.conf").exists():
            subprocess.run(["scancel", "--me"], env=self.environment, check=False, timeout=60, capture_output=True)
            wait_until(lambda: not self.command("squeue", "-h", "-o", "%i").strip(), "the end of every job")
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
        for node in self.nodes:
            for found in sorted(Path("/sys/fs/cgroup").glob(f"*/slurm_{node}"), key=str):
                for directory in sorted(found.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
                    directory.rmdir()
                found.rmdir()

    def command(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            arguments,
            env={**self.environment, **environment},
            cwd=self.jobs,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def submit(self, script: str, *options: str) -> int:
        """Submit a shell script as a job, and return its number."""
        return int(self.command("sbatch", "--parsable", *options, "--wrap", script).partition(";")[0])

    def fail_node(self) -> str:
        """Kill the daemon of the last node, and return its name."""
        self._running[-1].kill()
        self._running.pop().wait(20)
        return self.nodes[-1]

    def restore_node(self) -> None:
        """Restart the daemon of the failed node."""
        self._daemon("slurmd", "-D", "-N", self.nodes[-1])
        wait_until(lambda: self.command("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2", "idle nodes")

    def rest(self) -> AbstractContextManager[str]:
        """Run slurmrestd, which refuses to run as root, on a Unix socket; yield its address."""
        return _rest(self)

    def rest_with_tokens(self) -> AbstractContextManager[str]:
        """Run slurmrestd with token authentication on a port of 127.0.0.1; yield its address.

        The cluster must accept tokens.
        """
        return _rest_with_tokens(self)

    def token(self, seconds: int) -> str:
        """Create a token for root with ``scontrol token``, valid for some seconds."""
        return self.command("scontrol", "token", f"lifespan={seconds}")

    def state(self, number: int) -> str:
        return self.command("squeue", "-h", "-t", "all", "-o", "%T", "-j", str(number)).strip()

    def over(self, *numbers: int) -> None:
        """Wait until the jobs have ended and the accounting has recorded it."""
        live = {"PENDING", "RUNNING", "COMPLETING", "REQUEUED"}
        for number in numbers:
            wait_until(lambda number=number: self.accounts(number)["State"] not in live, f"the end of job {number}")  # type: ignore[misc]

    def accounts(self, number: int) -> dict[str, str]:
        """Return the ``sacct`` row of a job's last attempt, with times in epoch seconds."""
        text = self.command(
            *("sacct", "-nPX", "-j", str(number), "--delimiter=\x1f", f"--format={_COLUMNS}"), SLURM_TIME_FORMAT="%s"
        )
        rows = [dict(zip(_COLUMNS.split(","), line.split("\x1f"), strict=True)) for line in text.splitlines()]
        # The accounting writes a row in parts, and shows "allocation" until the row has a name.
        return next(
            (row for row in rows if row["JobIDRaw"] == str(number) and row["JobName"] != "allocation"),
            {"State": "PENDING"},
        )

    def _daemon(self, name: str, *arguments: str) -> None:
        with (self.folder / "log" / f"{name}{len(self._running)}.out").open("wb") as output:
            self._running.append(
                subprocess.Popen(
                    [str(find(name)), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self.environment,
                    start_new_session=True,
                )
            )

    def _start_munge(self) -> None:
        place = self.folder / "munge"
        (place / "munge.key").write_bytes(os.urandom(128))
        (place / "munge.key").chmod(0o400)
        _give(place, "munge")
        place.chmod(0o711)
        self._daemon_as(
            "munge",
            "munged",
            "--foreground",
            *(f"--{name}={place}/munge.{name.removesuffix('-file')}" for name in ("key-file", "pid-file", "seed-file")),
            f"--log-file={place}/munge.log",
            f"--socket={place}/munge.socket",
        )
        wait_until((place / "munge.socket").exists, "munged")

    def _start_database(self, port: int) -> None:
        place = self.folder / "maria"
        _give(place, "mysql")
        common = ("--no-defaults", "--user=mysql", f"--datadir={place}/data")
        made = ["mariadb-install-db", *common, "--auth-root-authentication-method=socket", "--skip-test-db"]
        subprocess.run(made, check=True, capture_output=True, timeout=120)
        self._daemon(
            "mariadbd",
            *common,
            f"--socket={place}/my.sock",
            f"--pid-file={place}/my.pid",
            "--bind-address=127.0.0.1",
            f"--port={port}",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-lock-wait-timeout=900",
        )
        wait_until(lambda: _listens(port), "the database")
        question = (
            "create database slurm_acct_db; create user 'slurm'@'127.0.0.1' identified by 'x';"
            "grant all on slurm_acct_db.* to 'slurm'@'127.0.0.1'"
        )
        self.command("mariadb", "--no-defaults", "-uroot", "-S", f"{place}/my.sock", "-e", question)

    def _daemon_as(self, user: str, name: str, *arguments: str) -> None:
        self._daemon("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", str(find(name)), *arguments)


@contextmanager
def _rest(cluster: Slurm) -> Iterator[str]:
    folder = cluster.folder / "rest"
    folder.mkdir(exist_ok=True)
    _give(folder, "nobody")
    path = folder / "socket"
    path.unlink(missing_ok=True)
    with _slurmrestd(cluster, "rest_auth/local", f"unix:{path}"):
        wait_until(path.exists, "slurmrestd")
        yield f"unix:{path}"


@contextmanager
def _rest_with_tokens(cluster: Slurm) -> Iterator[str]:
    (port,) = free_ports(1)
    with _slurmrestd(cluster, "rest_auth/jwt", f"127.0.0.1:{port}", SLURM_JWT="daemon"):
        wait_until(lambda: _listens(port), "slurmrestd")
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _slurmrestd(cluster: Slurm, authentication: str, address: str, **environment: str) -> Iterator[None]:
    user = ("--reuid=nobody", "--regid=nogroup", "--clear-groups")
    security = {"SLURMRESTD_SECURITY": "disable_unshare_files,disable_unshare_sysv"}
    with (cluster.folder / "log/slurmrestd.out").open("wb") as output:
        started = subprocess.Popen(
            [str(find("setpriv")), *user, str(find("slurmrestd")), "-a", authentication, address],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**cluster.environment, **security, **environment},
        )
    try:
        yield
    finally:
        started.terminate()
        started.wait(20)


def _write_configuration(cluster: Slurm, ports: list[int]) -> None:
    folder, host = cluster.folder, socket.gethostname()
    database, accounting, controller, *nodes = ports
    munge = f"AuthType=auth/munge\nAuthInfo=socket={folder}/munge/munge.socket\n"
    if find("auth_jwt") is not None:
        (folder / "state/jwt.key").write_bytes(os.urandom(32))
        (folder / "state/jwt.key").chmod(0o600)
        munge += f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={folder}/state/jwt.key\n"
    (folder / "etc/slurmdbd.conf").write_text(
        f"{munge}DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={accounting}\nCommunicationParameters=NoInAddrAny\n"
        f"SlurmUser=root\nLogFile={folder}/log/slurmdbd.log\nPidFile={folder}/run/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={database}\n"
        "StorageUser=slurm\nStoragePass=x\nStorageLoc=slurm_acct_db\n"
    )
    (folder / "etc/slurmdbd.conf").chmod(0o600)
    if V1:
        (folder / "etc/cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
            "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\n"
        )
    for number in range(2):
        (folder / f"dev/nvidia{number}").touch()
    (folder / "etc/gres.conf").write_text(
        "".join(f"NodeName={node} Name=gpu Type=h200 File={folder}/dev/nvidia[0-1]\n" for node in cluster.nodes)
    )
    described = "".join(
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=2000 Gres=gpu:h200:2\n"
        for node, port in zip(cluster.nodes, nodes, strict=True)
    )
    (folder / "etc/slurm.conf").write_text(
        f"ClusterName={cluster.name}\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n{munge}CredType=cred/munge\n"
        f"FirstJobId={cluster.first}\n"
        f"SlurmctldPort={controller}\nCommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n"
        f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n"
        f"SlurmctldPidFile={folder}/run/slurmctld.pid\nSlurmdPidFile={folder}/run/slurmd.%n.pid\n"
        f"SlurmctldLogFile={folder}/log/slurmctld.log\nSlurmdLogFile={folder}/log/slurmd.%n.log\n"
        f"{_TRACKING if V1 else _WITHOUT}JobAcctGatherFrequency=task=1\n"
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nMpiDefault=none\nReturnToService=2\n"
        "SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1\nGresTypes=gpu\n"
        "SlurmctldTimeout=10\nSlurmdTimeout=10\nKillWait=2\n"
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
        f"AccountingStoragePort={accounting}\nAccountingStoragePass={folder}/munge/munge.socket\n"
        f"AccountingStorageTRES=gres/gpu\n{described}"
        f"PartitionName=main Nodes={','.join(cluster.nodes)} Default=YES MaxTime=INFINITE DefMemPerCPU=100 State=UP\n"
    )


def cluster(name: str = "t", first: int = 0) -> AbstractContextManager[Slurm]:
    """Run a cluster for the block, and stop its processes at the end."""
    return running("slurm", lambda folder: Slurm(folder, name, first))


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _give(folder: Path, user: str) -> None:
    entry = pwd.getpwnam(user)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, entry.pw_uid, entry.pw_gid)
