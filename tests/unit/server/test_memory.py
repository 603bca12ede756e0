import ctypes
from pathlib import Path

import pytest

from jobmeter.server.memory import Tidying


def _resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_what_is_free_between_what_is_used_goes_back():
    blocks = [bytes(8_000) for _ in range(20_000)]
    for first in range(0, len(blocks), 100):
        blocks[first : first + 99] = [b""] * 99
    before = _resident()
    Tidying().round()
    assert _resident() < before - 80_000_000
    assert {len(one) for one in blocks} == {0, 8_000}
