"""Guest program of ``test_cgroup2``: runs an agent, and tasks in cgroups as schedulers create them.

``python tests/e2e/cgroup2_guest.py TASKS AGENT...``: TASKS is a JSON list of tasks. Each task has a cgroup with its
settings, an environment and a command. The command waits for the file ``/vmout/go-NAME``. When the cgroup is empty, the
program records the kernel's counters, and removes the cgroup after ``/vmout/remove-NAME`` appears. Real runtimes remove
it within milliseconds, but an emulated processor is too slow for that.
"""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

TOP = Path("/sys/fs/cgroup")
SHARE = Path("/vmout")
CONTROLLERS = "+cpu +memory +io +pids +cpuset"
COUNTED = ("cpu.stat", "memory.peak", "memory.events", "io.stat", "cpu.pressure", "memory.pressure", "io.pressure")


def make(group: str) -> Path:
    """Create a cgroup with all controllers enabled along its path, and return its folder."""
    folder = TOP
    for part in Path(group).parts:
        (folder / "cgroup.subtree_control").write_text(CONTROLLERS)
        folder /= part
        folder.mkdir(exist_ok=True)
    return folder


def wait_for(name: str) -> None:
    """Wait until the test creates this file."""
    while not (SHARE / name).exists():
        select.select([], [], [], 0.1)


def run(task: dict[str, Any]) -> None:
    """Run a task in its cgroup, and record the kernel's counters."""
    folder = make(task["group"])
    for name, value in task["settings"].items():
        (folder / name).write_text(value)
    environment = {"PATH": os.environ["PATH"], "HOME": "/root", **task["environment"]}
    with (folder / "cgroup.events").open() as events:
        # As with a scheduler's daemon, this process joins the cgroup first, so that its child is in it from the start.
        join = ["/bin/sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec env -i "$@"', "join"]
        variables = [f"{name}={value}" for name, value in environment.items()]
        process = subprocess.Popen([*join, *variables, "/bin/sh", "-c", task["command"]])
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        status = process.wait()
        while "populated 0" not in os.pread(events.fileno(), 4096, 0).decode():
            poll.poll(1000)
    truth = {name: (folder / name).read_text() for name in COUNTED}
    (SHARE / f"empty-{task['name']}").touch()
    wait_for(f"remove-{task['name']}")
    folder.rmdir()
    path = SHARE / f"truth-{task['name']}"
    path.with_suffix(".new").write_text(json.dumps({**truth, "status": status}))
    path.with_suffix(".new").rename(path)


def main() -> int:
    """Run the agent and the tasks of the command line."""
    tasks, agent = json.loads(sys.argv[1]), sys.argv[2:]
    with (SHARE / "agent.log").open("wb") as log:
        measuring = subprocess.Popen(agent, stdout=log, stderr=log)
    wait_for("begin")
    threads = [Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    measuring.send_signal(signal.SIGTERM)
    return measuring.wait()


if __name__ == "__main__":
    sys.exit(main())
