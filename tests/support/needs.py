"""Skips tests whose program is missing, with a reason that the summary of the run collects."""

import pytest

from tests.programs import PROGRAMS, find


def needs(name: str) -> None:
    """Skip the calling test if that program of ``tests.programs`` is not installed."""
    if find(name) is None:
        pytest.skip(PROGRAMS[name].reason)


def needing(name: str) -> pytest.MarkDecorator:
    """Return the mark of a test that needs that program."""
    return pytest.mark.skipif(find(name) is None, reason=PROGRAMS[name].reason)
