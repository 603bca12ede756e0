"""Table of XIDs: each code of the catalogue once, with a sentence and an advice."""

from jobmeter.model.finding import Severity
from jobmeter.model.xid import _CODES, XIDS, read_xid

UNUSED = {5, 10, 14, 15, 17, 23, *range(39, 42), *range(49, 54), 55, 87, 90, 91, 108}
"""Codes that the catalogue calls unused or reserved."""


def test_every_code_of_the_catalogue_has_one_entry():
    listed = [code for codes, *_ in _CODES for code in codes]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(range(1, 173)) - UNUSED
    assert all(one.text and one.advice.endswith(".") for one in XIDS.values())


def test_codes_have_the_severity_of_their_effect():
    reports = [read_xid(f"NVRM: Xid (PCI:0000:9b:00): {code}, x") for code in (45, 94, 171, 40)]
    found = {one.code: one.meaning.severity for one in reports if one}
    assert found == {45: Severity.INFO, 94: Severity.CRITICAL, 171: Severity.CRITICAL, 40: Severity.WARNING}
