from pathlib import Path

from jobmeter.dialects.base import Dialect
from jobmeter.dialects.prometheus import PROMETHEUS
from jobmeter.testing.dialect import DialectTests


class TestPrometheus(DialectTests):
    cases = Path(__file__).parent / "cases"

    def dialect(self) -> Dialect:
        return PROMETHEUS
