from pathlib import Path

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.eas import EAS
from jobmeter.testing.dialect import DialectTests


class TestEas(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self):
        return EAS


def test_other_products_and_versions_are_left_alone():
    path = "/api/v2/resources/c/r/log"
    assert (
        EAS.find_operation(Call("GET", path, "", (("x-acs-version", "2022-01-12"), ("x-acs-action", "GetJob")))) is None
    )
    assert EAS.find_operation(Call("GET", "/api/PaiStudio/2022-01-12/GetNodeMetrics", "", ())) is None


def test_limits_are_those_of_the_vendor():
    rates = {operation.name: operation.rate and operation.rate.per_second for operation in EAS.operations}
    limited = {name: rate for name, rate in rates.items() if rate is not None}
    assert limited == {"DescribeResourceLog": 100, "DeleteResourceLog": 10}
