"""Jobs that really do it: small programs run under ``jobmeter run``, some with a fault."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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
"""Minutes become quarters of a second; a machine's memory is more than a leak of seconds can fill."""
_PATIENCE = 40.0
_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A job: its program (Python), how many replicas run it, and the rule that has to be named ("": none).

    ``hangs``: it is looked at while it runs, then ended. ``group`` names a controller of a control group and the file
    and value that limit it; where none can be made the job is left out.
    """

    name: str
    rule: str
    code: str
    replicas: int = 1
    hangs: bool = False
    group: tuple[str, str, str] | None = None
    in_shell: bool = False


_SPIN = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass\n"
_WORK = (
    "import time\nfor step in range({steps}):\n"
    "    sum(range(60000)); print('step', step, flush=True); time.sleep(0.02)\n"
)

SCRIPTS = (
    Script(name="exception", rule="python_exception", code="def f(): raise ValueError('empty batch')\nf()"),
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
        code="import time\nkept = []\nfor _ in range(120):\n    kept.append(bytearray(4_000_000)); time.sleep(0.12)\n",
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
    Script(name="clean: short", rule="", code="print('done')"),
    Script(name="clean: computes", rule="", code=_SPIN.format(seconds=5)),
    Script(name="clean: works and waits", rule="", code=_WORK.format(steps=200)),
    Script(name="clean: sleeps", rule="", code="import time\ntime.sleep(5)"),
    Script(
        name="clean: memory up to a plateau",
        rule="",
        code="import time\nkept = [bytearray(4_000_000) for _ in range(30)]\ntime.sleep(5)",
    ),
    Script(name="clean: four alike", rule="", replicas=4, code=_WORK.format(steps=150)),
    Script(
        name="clean: an error that is caught",
        rule="",
        code="import traceback\ntry:\n    open('/nowhere')\nexcept OSError:\n    traceback.print_exc()\n",
    ),
    Script(name="clean: writes files", rule="", code="import tempfile\nf = tempfile.TemporaryFile()\n"
           "for _ in range(200):\n    f.write(b'x' * 65536)\n"),
)  # fmt: skip


def run(script: Script, server: OwnServer, environment: Mapping[str, str]) -> list[Finding] | None:
    """The findings of the job when it is over (while it hangs); None where this machine cannot run it."""
    job = "".join(letter if letter.isalnum() else "-" for letter in script.name.lower())
    words = ["sh", "-c", script.code] if script.in_shell else [sys.executable, "-u", "-c", script.code]
    options = ["--job-id", job, "--quiet", "--interval", "200ms"]
    if script.replicas > 1:
        options += ["--replicas", str(script.replicas)]
    command = [sys.executable, "-m", "jobmeter", "run", *options, "--", *words]
    with _inside(script.group) as before:
        if before is None:
            return None
        if before:
            command = ["sh", "-c", f'{before} && exec "$@"', "sh", *command]
        with subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            if not script.hangs:
                process.communicate(timeout=2 * _PATIENCE)
                return server.api.findings(job)
            try:
                return _until(lambda: server.api.findings(job), script.rule, process)
            finally:
                process.terminate()
                process.communicate(timeout=_PATIENCE)


def _until(ask: Callable[[], list[Finding]], rule: str, process: "subprocess.Popen[bytes]") -> list[Finding]:
    """What is found once the rule is among it, or patience ends."""
    clock = SystemClock()
    deadline = clock.monotonic() + _PATIENCE
    found: list[Finding] = []
    while clock.monotonic() < deadline and all(one.rule != rule for one in found):
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        with suppress(JobmeterError):
            found = ask()
    return found


@contextmanager
def _inside(group: tuple[str, str, str] | None) -> Iterator[str | None]:
    """What a shell does to enter a control group with that limit; "" for no group, None where none can be made."""
    if group is None:
        yield ""
        return
    controller, file, value = group
    folder = _GROUPS / controller / f"jobmeter-faults-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / file).write_text(value)
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        yield None
        return
    try:
        yield f"echo 0 > {folder}/cgroup.procs"
    finally:
        with suppress(OSError):
            folder.rmdir()
