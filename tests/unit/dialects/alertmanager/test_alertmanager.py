from pathlib import Path

from jobmeter.dialects.alertmanager import ALERTMANAGER
from jobmeter.dialects.base import Dialect
from jobmeter.testing.dialect import DialectTests


class TestAlertmanager(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self) -> Dialect:
        return ALERTMANAGER
