from pathlib import Path

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.cms import CMS
from jobmeter.testing.dialect import DialectTests

HEADERS = (("x-acs-version", "2019-01-01"), ("x-acs-action", "DescribeMetricList"))


class TestCms(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self):
        return CMS


def test_an_operation_is_requested_by_get_and_by_post():
    for method in ("GET", "POST"):
        match = CMS.find_operation(Call(method, "/", "", HEADERS))
        assert match is not None
        assert match.operation.name == "DescribeMetricList"


def test_other_versions_are_left_alone():
    assert (
        CMS.find_operation(Call("POST", "/", "", (("x-acs-version", "2022-12-15"), ("x-acs-action", "ListSyslogs"))))
        is None
    )
