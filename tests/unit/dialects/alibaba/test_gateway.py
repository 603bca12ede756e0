import json

import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.gateway import GATEWAY
from jobmeter.dialects.base import Context
from jobmeter.errors import NotFoundError


def call(path="/", **headers):
    return Call("POST", path, "", tuple((name.replace("_", "-"), value) for name, value in headers.items()))


UNSUPPORTED = [
    (call(x_acs_version="2014-05-26", x_acs_action="DescribeInstances"), "DescribeInstances", "2014-05-26"),
    (call("/api/PaiStudio/2099-01-01/GetNodeMetrics"), "PaiStudio/GetNodeMetrics", "2099-01-01"),
]


@pytest.mark.parametrize(("given", "action", "version"), UNSUPPORTED)
def test_a_call_of_another_product_is_refused_by_its_name(given, action, version):
    with pytest.raises(NotFoundError) as refused:
        GATEWAY.find_operation(given)
    assert f"{action!r} of version {version!r}" in refused.value.message


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/jobmeter/v1/jobs"])
def test_a_call_without_an_action_is_left_to_others(path):
    assert GATEWAY.find_operation(call(path)) is None


def test_the_refusal_has_the_form_of_the_vendor():
    given = UNSUPPORTED[0][0]
    with pytest.raises(NotFoundError) as refused:
        GATEWAY.find_operation(given)
    answer = GATEWAY.render_error(given, Context(0, "7B1F"), refused.value)
    assert answer.status == 404
    body = json.loads(answer.body)
    assert body["Code"] == "InvalidAction.NotFound"
    assert body["RequestId"] == "7B1F"
