"""Repeats the kernel tests on a library that stops at the first bad address or undefined operation.

Only the library is instrumented. The interpreter and NumPy are unchanged, with the sanitizer's runtime loaded first.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobmeter import kernel
from jobmeter.kernel.abi import compute_number

FOLDER = Path(kernel.__file__).parent
TESTS = Path(__file__).parent
FLAGS = ["-std=c11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
ROUNDS = 2_000
COVERED = (
    "kernel",
    "wire/remote_write",
    "wire/otlp/test_otlp.py",
    "wire/test_json_shape.py",
    "store/window/test_merge.py",
    "store/window/test_window_write.py",
    "store/clickhouse/test_rows.py",
)


def run(sanitized, arguments, seconds):
    library, run_time = sanitized
    environment = {
        **os.environ,
        "JOBMETER_KERNEL": str(library),
        "LD_PRELOAD": run_time,
        # The interpreter does not free its memory at its end, and Python's own allocator would hide the ends of arrays.
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "CI": "true",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=TESTS.parents[2],
        timeout=seconds,
        check=False,
    )


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """Build the instrumented library. Return it, and the runtime to load before it."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is not installed")
    run_time = subprocess.check_output([compiler, "-print-file-name=libasan.so"], text=True).strip()
    if not Path(run_time).is_absolute():
        pytest.skip("gcc's address sanitizer is not installed")
    library = tmp_path_factory.mktemp("sanitized") / "kernel.so"
    abi = f"-DJOBMETER_ABI=INT64_C({compute_number(FOLDER)})"
    sources = sorted(map(str, FOLDER.glob("*.c")))
    subprocess.run([compiler, *FLAGS, *SANITIZERS, abi, "-o", str(library), *sources], check=True)
    return library, run_time


@pytest.mark.slow
@pytest.mark.timeout(1_100)
def test_no_test_reads_or_writes_where_it_may_not(sanitized):
    options = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=few", "--ignore", __file__]
    done = run(sanitized, ["-m", "pytest", *options, *(str(TESTS.parent / tests) for tests in COVERED)], 1_000)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6_000:]
    assert " passed" in done.stdout


@pytest.mark.slow
def test_damaged_bodies_are_read_within_their_bounds(sanitized):
    done = run(sanitized, ["-m", "tests.unit.kernel.fuzz", str(ROUNDS)], 120)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6_000:]
    assert int(done.stdout.split()[0]) >= 10 * ROUNDS


def test_the_sanitizer_stops_at_a_bad_address(sanitized):
    script = (
        "import ctypes, numpy as np\n"
        "from jobmeter.kernel import window\n"
        "pages = (ctypes.c_void_p * 9)(*[8] * 9)\n"
        "window.find_previous(pages, np.zeros(1, np.int64), 5)\n"
    )
    done = run(sanitized, ["-c", script], 60)
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr or "runtime error" in done.stderr
