"""Skips a test whose program is missing, in words that the summary of the run collects."""

import os

import pytest

from tests.programs import PROGRAMS, find

WITHOUT_KERNEL = os.environ.get("JOBMETER_KERNEL", "") == "off"
"""True in the run that shows that everything holds without the compiled kernel (``make test-plain``)."""
kernel_wanted = pytest.mark.skipif(WITHOUT_KERNEL, reason="JOBMETER_KERNEL is off")


def needs(name: str) -> None:
    """Skip the test that asks, where that program of ``tests.programs`` is not installed."""
    if find(name) is None:
        pytest.skip(PROGRAMS[name].reason)


def needing(name: str) -> pytest.MarkDecorator:
    """The mark of a test that needs that program."""
    return pytest.mark.skipif(find(name) is None, reason=PROGRAMS[name].reason)
