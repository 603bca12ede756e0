"""Output of a run's command: unchanged on the terminal, and on the server with every line once."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until

PROGRAM = """
import sys
for number in range({count}):
    if {paced} and not sys.stdin.readline(): break
    print(f"line {{number}}", flush=True)
    print(f"WARNING: odd {{number}}", file=sys.stderr, flush=True)
print("no end", end="", flush=True)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = ServerProcess(tmp_path_factory.mktemp("logs") / "data").start()
    yield made
    made.stop()


def command(data, url, token, job, *words, options=()):
    own = ["--server", url, "--key", token, "--data", str(data), "--job-id", job, "--interval", "1s", *options]
    return [sys.executable, "-m", "jobmeter", "run", *own, "--", *words]


def run(server, tmp_path, job, *words, options=(), **more):
    url = f"http://127.0.0.1:{server.port}"
    call = command(tmp_path / "run", url, server.token, job, *words, options=options)
    return subprocess.run(call, capture_output=True, timeout=120, check=False, **more)


def stored(server, job, **query):
    reply = server.call("GET", f"{API}/jobs/{job}/logs", format="jsonl", **query)
    assert reply.status == 200, reply.body
    return [json.loads(line) for line in reply.body.splitlines()]


def has_arrived(server, job, lines):
    """Return True if the server has that number of lines of its standard output. An unknown job has no lines."""
    reply = server.call("GET", f"{API}/jobs/{job}/logs", format="jsonl", stream="stdout", limit=1000)
    return reply.status == 200 and len(reply.body.splitlines()) >= lines


def python(code):
    return sys.executable, "-c", code


def test_both_streams_arrive_with_their_lines(server, tmp_path):
    code = PROGRAM.format(count=50, paced=False)
    done = run(server, tmp_path, "both", *python(code))
    assert done.returncode == 3
    assert done.stdout.decode() == "".join(f"line {number}\n" for number in range(50)) + "no end"
    assert done.stderr.decode().startswith("".join(f"WARNING: odd {number}\n" for number in range(50)))
    assert "101 lines stored" in done.stderr.decode()
    out, err = stored(server, "both", stream="stdout"), stored(server, "both", stream="stderr")
    assert [line["text"] for line in out] == [*(f"line {number}" for number in range(50)), "no end"]
    assert [(line["text"], line["level"]) for line in err] == [(f"WARNING: odd {n}", "warning") for n in range(50)]
    assert {(line["replica"], line["attempt"]) for line in (*out, *err)} == {("worker-0", 0)}
    assert all(line["node"] for line in out)
    listed = [line["text"] for line in stored(server, "both", level="warning")]
    assert listed == [line["text"] for line in err]


def test_replicas_are_distinguished_and_the_verb_names_them(server, tmp_path):
    # Write each in one piece, because concurrent replicas interleave pieces.
    code = "import os, sys; sys.stdout.write(f\"I am {os.environ['RANK']}\\n\")"
    done = run(server, tmp_path, "many", *python(code), options=["--replicas", "3", "--quiet"])
    assert sorted(done.stdout.decode().splitlines()) == ["I am 0", "I am 1", "I am 2"]
    url = f"http://127.0.0.1:{server.port}"
    verb = [sys.executable, "-m", "jobmeter", "logs", "many", "--server", url, "--key", server.token]
    printed = subprocess.run(verb, capture_output=True, text=True, timeout=60, check=True).stdout
    assert sorted(printed.splitlines()) == [f"worker-{rank} | I am {rank}" for rank in range(3)]
    one = subprocess.run([*verb, "--replica", "worker-1"], capture_output=True, text=True, timeout=60, check=True)
    assert one.stdout == "I am 1\n"
    followed = subprocess.run(
        [*verb, "--follow", "--tail", "1"], capture_output=True, text=True, timeout=60, check=True
    )
    assert len(followed.stdout.splitlines()) == 1


def test_without_logs_the_command_has_our_own_output(server, tmp_path):
    with (tmp_path / "out").open("wb") as out:
        url = f"http://127.0.0.1:{server.port}"
        code = "import os; print(os.fstat(1).st_ino)"
        call = command(tmp_path / "run", url, server.token, "none", *python(code), options=["--no-logs", "--quiet"])
        subprocess.run(call, stdout=out, timeout=120, check=True)
    assert int((tmp_path / "out").read_text()) == (tmp_path / "out").stat().st_ino
    assert stored(server, "none") == []


def test_a_reader_that_leaves_ends_the_command(server, tmp_path):
    url = f"http://127.0.0.1:{server.port}"
    call = command(tmp_path / "run", url, server.token, "pipe", "yes", options=["--quiet"])
    with subprocess.Popen(call, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(20) == b"y\n" * 10
        process.stdout.close()
        assert process.wait(180) == 128 + signal.SIGPIPE


def test_a_process_that_is_left_behind_is_not_waited_for(server, tmp_path):
    began = time.monotonic()
    done = run(server, tmp_path, "left", "sh", "-c", "sleep 60 & echo $!")
    assert time.monotonic() - began < 50
    os.kill(int(done.stdout), signal.SIGKILL)
    assert [line["text"] for line in stored(server, "left")] == [done.stdout.decode().strip()]


def test_a_terminal_stays_one_and_a_progress_bar_is_a_few_lines(server, tmp_path):
    code = """
import os, select, sys
size = os.get_terminal_size(1)
print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty(), size.columns, os.ttyname(0) != os.ttyname(1))
sys.stdin.readline()  # until the line above was seen: two streams have no order between them
for at in range(101):
    sys.stderr.write(f"\\r{at}%")
    sys.stderr.flush()
    select.select([], [], [], 0.01)  # a bar is drawn at its own pace
sys.stderr.write("\\n")
"""
    url = f"http://127.0.0.1:{server.port}"
    call = command(tmp_path / "run", url, server.token, "bar", *python(code), options=["--quiet"])
    script = (
        "import fcntl, pty, struct, sys, termios, os\n"
        "def spawn():\n"
        "    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 33, 77, 0, 0))\n"
        "    how = termios.tcgetattr(0); how[3] &= ~termios.ECHO; termios.tcsetattr(0, termios.TCSANOW, how)\n"
        "    os.execv(sys.argv[1], sys.argv[1:])\n"
        "pid, master = pty.fork()\n"
        "if pid == 0: spawn()\n"
        "seen = b''\n"
        "while True:\n"
        "    try: data = os.read(master, 65536)\n"
        "    except OSError: break\n"
        "    if not data: break\n"
        "    if b'\\n' not in seen and b'\\n' in seen + data: os.write(master, b'\\n')\n"
        "    seen += data\n"
        "    os.write(1, data)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run(
        [*python(script), *call], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done
    first, *rest = done.stdout.split(b"\r\n")
    assert first == b"True True True 77 True"
    assert rest == [b"".join(b"\r%d%%" % at for at in range(101)), b""]
    bar = [line["text"] for line in stored(server, "bar", stream="stderr")]
    assert bar[-1] == "100%"
    assert len(bar) < 10


@pytest.mark.slow
def test_a_server_that_is_killed_loses_no_line_and_doubles_none(tmp_path):
    server = ServerProcess(tmp_path / "data").start()
    port = server.port
    code = PROGRAM.format(count=300, paced=True)
    call = command(tmp_path / "run", f"http://127.0.0.1:{port}", server.token, "killed", *python(code))
    with subprocess.Popen(
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        for written in (60, 180):
            process.stdin.write(b"\n" * 60)
            wait_until(partial(has_arrived, server, "killed", written - 30))
            process.stdin.write(b"\n" * 30)  # some of these are in transit
            server.kill()
            process.stdin.write(b"\n" * 30)  # these wait
            server.options = ("--port", str(port))
            server.start()
        out, err = process.communicate(b"\n" * 60, timeout=120)
    try:
        assert process.returncode == 3
        assert out.decode() == "".join(f"line {number}\n" for number in range(300)) + "no end"
        left = "not delivered" in err.decode()
        if left:  # the next run to the same server delivers the waiting lines
            subprocess.run(
                command(tmp_path / "run", f"http://127.0.0.1:{port}", server.token, "next", "true"),
                capture_output=True, timeout=120, check=True,
            )  # fmt: skip
        texts = [line["text"] for line in stored(server, "killed", stream="stdout")]
        assert texts == [*(f"line {number}" for number in range(300)), "no end"]
        odd = [line["text"] for line in stored(server, "killed", stream="stderr")]
        assert odd == [f"WARNING: odd {number}" for number in range(300)]
    finally:
        server.stop()
