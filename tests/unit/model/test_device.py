"""Tests of bus addresses of devices, as written by kernels and vendors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.device import STATES, find_addresses, normalize_pci_address

_BYTES = st.integers(0, 255)


@given(st.integers(0, 0xFFFF), _BYTES, st.integers(0, 31), st.integers(0, 7))
def test_every_form_of_an_address_is_the_same_one(domain, bus, slot, function):
    short = f"{domain:04x}:{bus:02x}:{slot:02x}"
    forms = [short, f"{short}.{function}", f"{domain:08X}:{bus:02X}:{slot:02X}.{function}", f" {short}\n"]
    assert {normalize_pci_address(form) for form in forms} == {short}
    lines = [
        f"NVRM: Xid (PCI:{short}): 79, pid=1234, GPU has fallen off the bus.",
        f"amdgpu {short}.{function}: amdgpu: GPU reset begin!",
        f"[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, amdgpu {short}.{function}",
        f"mlx5_core {short}.{function} ib0: Link down",
        f"pcieport {short}.{function}: AER: Corrected error received: {short}.{function}",
    ]
    assert {tuple(find_addresses(line)) for line in lines} == {(short,)}


@pytest.mark.parametrize("text", ["", "GPU-5a3b", "0000:9b", "0000:9b:00.9", "0000:9b:00:01", "10:00:00 UTC"])
def test_what_is_no_address_is_none(text):
    assert normalize_pci_address(text) == ""


@given(st.text(max_size=300))
def test_any_line_can_be_searched(line):
    assert all(normalize_pci_address(found) == found for found in find_addresses(line))


def test_codes_of_states_never_change():
    """Stored values of `gpu.state` contain these codes."""
    assert [str(one) for one in STATES] == [
        "measured",
        "no permission",
        "library missing",
        "library mismatch",
        "driver not loaded",
        "hangs",
        "reset required",
        "lost",
    ]
    assert [one.code for one in STATES] == list(range(8))
