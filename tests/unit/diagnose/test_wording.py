"""Words of findings for lengths of time."""

import pytest

from jobmeter.diagnose.wording import minutes


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (20_400, "20 s"),
        (90_000, "2 min"),
        (7_199_999, "120 min"),
        (7_200_000, "2 h 00 min"),
        (11_099_000, "3 h 05 min"),
        (10_799_999, "3 h 00 min"),
    ],
)
def test_a_length_of_time_has_whole_units(length_ms, text):
    assert minutes(length_ms) == text
