"""Tests of the table of XIDs: each code of NVIDIA's catalogue once, with a sentence and an advice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.finding import Severity
from jobmeter.model.xid import _CODES, XIDS, XidReport, read_xid

UNUSED = {5, 10, 108}
"""Codes that neither NVIDIA's catalogue nor the driver's nverror.h contains."""


def test_every_code_of_the_catalogue_has_one_entry():
    listed = [code for codes, *_ in _CODES for code in codes]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(range(1, 173)) - UNUSED
    assert all(one.text and one.advice.endswith(".") for one in XIDS.values())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (39, "copy engine"),
        (41, "copy engine"),
        (90, "second-level cache"),
        (52, "power state"),
        (23, "without an error"),
    ],
)
def test_codes_that_only_the_drivers_source_names(code, text):
    assert text in XIDS[code].text


def test_codes_have_the_severity_of_their_effect():
    reports = [read_xid(f"NVRM: Xid (PCI:0000:9b:00): {code}, x") for code in (45, 94, 171, 40)]
    found = {one.code: one.meaning.severity for one in reports if one}
    assert found == {45: Severity.INFO, 94: Severity.CRITICAL, 171: Severity.CRITICAL, 40: Severity.WARNING}


@pytest.mark.parametrize(
    ("place", "instance", "compute"),
    [("", None, None), (" GPU-I:05", 5, None), (" GPU-I:01 GPU-CI:02", 1, 2)],
)
def test_a_line_names_the_mig_instance(place, instance, compute):
    line = f"NVRM: Xid (PCI:0000:01:00{place}): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
    assert read_xid(line) == XidReport(94, "0000:01:00", instance, compute)


@given(
    st.integers(0, 999),
    st.sampled_from(["", "0000:3b:00"]),
    st.none() | st.integers(0, 99),
    st.none() | st.integers(0, 99),
)
def test_the_text_of_a_report_is_read_as_the_report(code, device, instance, place):
    place = None if instance is None else place
    report = XidReport(code, device, instance if device else None, place if device else None)
    assert read_xid(f"gpu0 had {report}, reported by NVML") == report
