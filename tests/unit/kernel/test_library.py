"""Handing arrays to the library."""

import gc
import weakref

import numpy as np

from jobmeter.kernel.library import pointer


def test_an_array_lives_for_as_long_as_its_pointer():
    array = np.arange(5)
    place, known = pointer(array), weakref.ref(array)
    assert place.value == array.ctypes.data
    del array
    gc.collect()
    assert known() is not None
    del place
    gc.collect()
    assert known() is None
