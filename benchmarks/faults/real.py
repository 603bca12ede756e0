"""Real jobs: small programs that run under ``jobmeter run``, some of them with a fault."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.faults.surroundings import control_group, data_file, small_disk
from jobmeter.errors import JobmeterError
from jobmeter.examples.server import OwnServer
from jobmeter.model.finding import Finding
from jobmeter.model.time import SystemClock

THRESHOLDS = """
[common]
minute = "250ms"

[host_mem_leak]
full = "1000h"
growth = 0.0

[straggler_rank]
hold = "10m"
"""
"""Thresholds for jobs of seconds: a minute becomes 250 ms, and a leak counts however long it takes to fill memory."""
_PATIENCE = 120.0
_DISK_MEGABYTES = 32
_DATA_MEGABYTES = 16
FULL = "no checkpoint"
"""Text that the job with a full filesystem prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Job: its program in Python (in ``sh`` with ``in_shell``), its replicas, and the rule that must be named.

    ``rule`` is empty for a healthy job. The findings of a job that ``hangs`` are read while it runs, then it is ended.
    ``group`` gives a controller, a file and a value, which limit the job by a control group. With ``disk`` the job has
    a small filesystem, {disk} in its program. An agent measures it once, after the job printed that it is full. With
    ``data`` the job has a file, {data} in its program, on the disk that is {device} in the value of ``group``. A job
    whose surroundings cannot be made on this machine is left out.
    """

    name: str
    code: str
    rule: str = ""
    replicas: int = 1
    hangs: bool = False
    group: tuple[str, str, str] | None = None
    disk: bool = False
    data: bool = False
    in_shell: bool = False


_SPIN = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass\n"
_WORK = (
    "import time\nfor step in range({steps}):\n"
    "    sum(range(60000)); print('step', step, flush=True); time.sleep(0.02)\n"
)

SCRIPTS = (
    Script(name="exception", rule="python_exception", code="def f(): raise ValueError('empty batch')\nf()"),
    Script(
        name="Perl dies",
        rule="uncaught_error",
        code="echo working; perl -e 'die \"no batch\"'",
        in_shell=True,
    ),
    Script(name="exit 3", rule="unknown_exit", code="echo working; exit 3", in_shell=True),
    Script(name="SIGSEGV", rule="segfault", code="kill -SEGV $$", in_shell=True),
    Script(name="SIGKILL", rule="killed", code="kill -KILL $$", in_shell=True),
    Script(name="missing file", rule="file_missing", code="open('/nowhere/train.bin')"),
    Script(name="no such program", rule="file_missing", code="no-such-program-anywhere", in_shell=True),
    Script(
        name="wrong argument",
        rule="config_error",
        code="import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--data', required=True)\np.parse_args([])",
    ),
    Script(name="no permission", rule="permission_denied", code="/etc/passwd", in_shell=True),
    Script(
        name="NaN loss",
        rule="nan_loss",
        code="print('epoch 1 loss: nan', flush=True)\nraise SystemExit('the loss is not finite')",
    ),
    Script(
        name="busy rank of four",
        rule="straggler_rank",
        replicas=4,
        code="import os, time\nend = time.monotonic() + 7\n"
        "while time.monotonic() < end:\n    (lambda: None)() if os.environ['RANK'] == '2' else time.sleep(0.05)\n",
    ),
    Script(
        name="a rank dies first",
        rule="python_exception",
        replicas=3,
        code="import os, sys, time\nif os.environ['RANK'] == '1': raise KeyError('label')\n"
        "time.sleep(1.5)\nprint('Connection closed by peer [127.0.0.1]', file=sys.stderr)\nsys.exit(1)\n",
    ),
    Script(
        name="leak",
        rule="host_mem_leak",
        code="import time\nkept, begin = [], time.monotonic()\nwhile len(kept) < 120:\n"
        "    kept.append(bytearray(4_000_000))\n"
        "    time.sleep(max(begin + 0.12 * len(kept) - time.monotonic(), 0))\n",  # the same rate on a busy machine
    ),
    Script(
        name="hang on a lock",
        rule="hang_hw",
        hangs=True,
        code=_SPIN.format(seconds=3) + "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n",
    ),
    Script(
        name="memory limit of a group",
        rule="host_oom_kill",
        code="x = bytearray(300_000_000)",
        group=("memory", "memory.limit_in_bytes", str(96 * 2**20)),
    ),
    Script(
        name="full filesystem",
        rule="fs_full",
        disk=True,
        code="import os, time\ntry:\n    with open('{disk}/checkpoint', 'wb') as file:\n"
        "        while True: file.write(bytes(65536)); file.flush()\n"
        f"except OSError as error: print('{FULL}:', error, flush=True)\n"
        "end = time.monotonic() + 30\n"
        "while time.monotonic() < end and os.path.exists('{disk}/checkpoint'): sum(range(60000)); time.sleep(0.02)\n",
    ),
    Script(
        name="CPU quota of a group",
        rule="cpu_throttled",
        code=_SPIN.format(seconds=6),
        group=("cpu", "cpu.cfs_quota_us", "20000"),  # a fifth of a core, which throttles on a busy machine too
    ),
    Script(
        name="slow disk",
        rule="io_bound_input",
        data=True,
        code="import os, time\nfile = os.open('{data}', os.O_RDONLY)\nend = time.monotonic() + 6\n"
        "while time.monotonic() < end:\n    if not os.read(file, 65536): os.lseek(file, 0, os.SEEK_SET)\n"
        "    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)\n",
        group=("blkio", "blkio.throttle.read_bps_device", "{device} 1048576"),
    ),
    Script(name="clean: short", code="print('done')"),
    Script(name="clean: computes", code=_SPIN.format(seconds=5)),
    Script(name="clean: works and waits", code=_WORK.format(steps=200)),
    Script(name="clean: sleeps", code="import time\ntime.sleep(5)"),
    Script(
        name="clean: memory up to a plateau",
        code="import time\nkept = [bytearray(4_000_000) for _ in range(30)]\ntime.sleep(5)",
    ),
    Script(name="clean: four alike", replicas=4, code=_WORK.format(steps=150)),
    Script(
        name="clean: an error that is caught",
        code="import traceback\ntry:\n    open('/nowhere')\nexcept OSError:\n    traceback.print_exc()\n",
    ),
    Script(
        name="clean: memory that comes and goes",
        code="import time\nfor _ in range(8):\n    kept = []\n    for _ in range(10):\n"
        "        kept.append(bytearray(8_000_000)); time.sleep(0.05)\n",
    ),
    Script(
        name="clean: child processes",
        code="import subprocess, sys\nfor _ in range(10):\n"
        "    subprocess.run([sys.executable, '-c', 'sum(range(3000000))'], check=True)\n",
    ),
    Script(
        name="clean: threads",
        code="import threading, zlib\ndef work():\n    for _ in range(150): zlib.compress(bytes(1_000_000))\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "for one in threads: one.start()\nfor one in threads: one.join()\n",
    ),
    Script(
        name="clean: warns",
        code="import sys, time\nfor at in range(60):\n"
        "    print('WARNING: lr is high at step', at, file=sys.stderr, flush=True); time.sleep(0.05)\n",
    ),
    Script(
        name="clean: reads a file over and over",
        code="import sys\nfor _ in range(4000):\n    open(sys.executable, 'rb').read(1_000_000)\n",
    ),
    Script(
        name="clean: talks over the loopback",
        code="import socket, threading\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "def give():\n    other, _ = server.accept()\n    for _ in range(2000): other.sendall(bytes(65536))\n"
        "    other.close()\n"
        "threading.Thread(target=give).start()\nmine = socket.create_connection(server.getsockname())\n"
        "while mine.recv(65536): pass\n",
    ),
    Script(
        name="clean: retries and succeeds",
        code="import sys\nfor at in range(3):\n    print('ConnectionError: attempt', at, 'failed', file=sys.stderr)\n"
        "print('done')\n",
    ),
    Script(
        name="clean: writes files",
        code="import tempfile\nf = tempfile.TemporaryFile()\nfor _ in range(200):\n    f.write(b'x' * 65536)\n",
    ),
)


def run(script: Script, server: OwnServer, environment: Mapping[str, str]) -> list[Finding] | None:
    """Run a job and return its findings after its end.

    The findings of a job that hangs are read while it runs. Returns None if this machine cannot make the job's
    surroundings.
    """
    with ExitStack() as stack:
        if script.disk:
            disk = stack.enter_context(small_disk(_DISK_MEGABYTES))
            return None if disk is None else _run(_filled(script, disk=str(disk)), server, environment, disk)
        if script.data:
            made = stack.enter_context(data_file(_DATA_MEGABYTES))
            if made is None:
                return None
            return _run(_filled(script, data=str(made[0]), device=made[1]), server, environment)
        return _run(script, server, environment)


def _filled(script: Script, **places: str) -> Script:
    """Return the script with ``places`` in place of their names in braces."""
    code, limit = script.code, script.group[2] if script.group else ""
    for name, place in places.items():
        code, limit = code.replace(f"{{{name}}}", place), limit.replace(f"{{{name}}}", place)
    return replace(script, code=code, group=script.group and (*script.group[:2], limit))


def _run(
    script: Script, server: OwnServer, environment: Mapping[str, str], disk: Path | None = None
) -> list[Finding] | None:
    job = "".join(letter if letter.isalnum() else "-" for letter in script.name.lower())
    words = ["sh", "-c", script.code] if script.in_shell else [sys.executable, "-u", "-c", script.code]
    options = ["--job-id", job, "--quiet", "--interval", "200ms"]
    if script.replicas > 1:
        options += ["--replicas", str(script.replicas)]
    command = [sys.executable, "-m", "jobmeter", "run", *options, "--", *words]
    with control_group(script.group) as before:
        if before is None:
            return None
        if before:
            command = ["sh", "-c", f'{before} && exec "$@"', "sh", *command]
        with subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            if disk:
                _measure_when_full(process, environment, disk)
            if not script.hangs:
                process.communicate(timeout=2 * _PATIENCE)
                return server.api.list_findings(job)
            try:
                return _until(lambda: server.api.list_findings(job), script.rule, process)
            finally:
                process.terminate()
                process.communicate(timeout=_PATIENCE)


def _measure_when_full(process: "subprocess.Popen[bytes]", environment: Mapping[str, str], disk: Path) -> None:
    """Run an agent once while the filesystem is full, then delete the job's file, which ends the job."""
    for line in process.stdout or ():
        if FULL in line.decode(errors="replace"):
            break
    spool = Path(environment["JOBMETER_DATA"]) / "agent"
    command = [sys.executable, "-m", "jobmeter", "agent", "--once", "--spool", str(spool)]
    subprocess.run(command, env=dict(environment), capture_output=True, timeout=_PATIENCE, check=False)
    (disk / "checkpoint").unlink()


def _until(find: Callable[[], list[Finding]], rule: str, process: "subprocess.Popen[bytes]") -> list[Finding]:
    """Return the findings once the rule is among them, or after ``_PATIENCE`` seconds."""
    clock = SystemClock()
    deadline = clock.monotonic() + _PATIENCE
    found: list[Finding] = []
    while clock.monotonic() < deadline and all(one.rule != rule for one in found):
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        with suppress(JobmeterError):
            found = find()
    return found
