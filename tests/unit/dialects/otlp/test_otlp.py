from pathlib import Path

from jobmeter.dialects.base import Dialect
from jobmeter.dialects.otlp import OTLP
from jobmeter.testing.dialect import DialectTests


class TestOtlp(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self) -> Dialect:
        return OTLP
