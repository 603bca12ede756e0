"""Tests of choosing the compiled library, and of passing arrays to it."""

import gc
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from jobmeter import kernel
from jobmeter.kernel.abi import compute_number
from jobmeter.kernel.library import load, point_to

FOLDER = Path(kernel.__file__).parent


def test_an_array_lives_for_as_long_as_its_pointer():
    array = np.arange(5)
    place, reference = point_to(array), weakref.ref(array)
    assert place.value == array.ctypes.data
    del array
    gc.collect()
    assert reference() is not None
    del place
    gc.collect()
    assert reference() is None


@pytest.fixture
def sources(tmp_path):
    """Copy the sources together with the library built from them."""
    for file in (*FOLDER.glob("*.[ch]"), FOLDER / "_kernel.so"):
        shutil.copy(file, tmp_path)
    return tmp_path


def test_a_library_of_other_sources_is_not_used(sources):
    assert load(sources, "").library is not None
    changed = sources / "window.c"
    changed.write_text(changed.read_text() + "\n")
    assert load(sources, "").missing == "it was built from other sources: install again"


def test_every_source_changes_the_number(sources):
    before = compute_number(sources)
    assert 0 < before < 2**63
    for file in sources.glob("*.[ch]"):
        text = file.read_bytes()
        file.write_bytes(text + b" ")
        assert compute_number(sources) != before
        file.write_bytes(text)
    assert compute_number(sources) == before


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("", "no C compiler"), ("/nowhere/kernel.so", "not built")],
)
def test_why_there_is_no_library(tmp_path, choice, reason):
    found = load(tmp_path, choice)
    assert found.library is None
    assert reason in found.missing


def test_a_file_that_is_no_library_is_reported(tmp_path):
    (tmp_path / "_kernel.so").write_bytes(b"damaged")
    assert "cannot be loaded" in load(tmp_path, "").missing


def without_library(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that finds no library."""
    environment = {**os.environ, "JOBMETER_KERNEL": "/nowhere/kernel.so"}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_a_server_without_the_library_says_what_to_install_and_leaves_no_folder(tmp_path):
    folder = tmp_path / "data"
    done = without_library("from jobmeter.cli.main import main; main()", "serve", "--port", "0", "--data", str(folder))
    assert done.returncode == 1
    assert "the compiled kernel is missing" in done.stderr
    assert "Install the wheel for this platform" in done.stderr
    assert "Traceback" not in done.stderr
    assert not folder.exists()


def test_a_function_without_the_library_says_that_it_is_missing():
    """Every kernel module can be imported: programs that never call the kernel work."""
    program = "from jobmeter.kernel import rows, samples, window\nsamples.copy_columns(bytes(20), 0, 1, 1)"
    done = without_library(program)
    assert done.stderr.splitlines()[-1].startswith("jobmeter.errors.ConfigurationError: the compiled kernel is missing")
