"""Which library is used, and handing arrays to it."""

import gc
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
from tests.needs import kernel_wanted, needing

from jobmeter import kernel
from jobmeter.kernel.abi import number
from jobmeter.kernel.library import KERNEL, load, pointer

FOLDER = Path(kernel.__file__).parent


@kernel_wanted
@needing("cc")
def test_there_is_a_compiled_kernel_where_there_is_a_compiler():
    """The kernel's tests skip without it: a source that does not compile must not look like a missing compiler."""
    assert KERNEL.library is not None, KERNEL.missing


def test_an_array_lives_for_as_long_as_its_pointer():
    array = np.arange(5)
    place, reference = pointer(array), weakref.ref(array)
    assert place.value == array.ctypes.data
    del array
    gc.collect()
    assert reference() is not None
    del place
    gc.collect()
    assert reference() is None


@pytest.fixture
def sources(tmp_path):
    """A copy of the sources, with the library that was built from them where there is one."""
    for file in FOLDER.glob("*.[ch]"):
        shutil.copy(file, tmp_path)
    if (FOLDER / "_kernel.so").exists():
        shutil.copy(FOLDER / "_kernel.so", tmp_path)
    return tmp_path


def test_a_library_of_other_sources_is_not_used(sources):
    if KERNEL.library is None:
        pytest.skip("there is no compiled kernel")
    assert load(sources, "").library is not None
    changed = sources / "window.c"
    changed.write_text(changed.read_text() + "\n")
    assert load(sources, "").missing == "it was built from other sources: install again"


def test_every_source_changes_the_number(sources):
    before = number(sources)
    assert 0 < before < 2**63
    for file in sources.glob("*.[ch]"):
        text = file.read_bytes()
        file.write_bytes(text + b" ")
        assert number(sources) != before
        file.write_bytes(text)
    assert number(sources) == before


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("off", "JOBMETER_KERNEL is off"), ("", "no C compiler"), ("/nowhere/kernel.so", "not built")],
)
def test_why_there_is_no_library(tmp_path, choice, reason):
    found = load(tmp_path, choice)
    assert found.library is None
    assert reason in found.missing


def test_a_file_that_is_no_library_is_reported(tmp_path):
    (tmp_path / "_kernel.so").write_bytes(b"damaged")
    assert "cannot be loaded" in load(tmp_path, "").missing
