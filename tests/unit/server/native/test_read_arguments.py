"""Tests of the parameters of a query."""

import pytest

from jobmeter.access.call import read_parameters
from jobmeter.errors import InvalidRequestError
from jobmeter.server.native import metrics
from jobmeter.server.native.arguments import Arguments
from jobmeter.server.native.endpoint import list_endpoints

(ENDPOINT,) = (one for one in list_endpoints(metrics) if one.name == "getJobMetrics")


def read(query: str) -> Arguments:
    return Arguments(ENDPOINT.allowed, read_parameters(query))


@pytest.mark.parametrize(
    "query",
    [
        "metric=cpu.usage&start=1&end=2&by=device",
        "start=1&metric=cpu%2Eusage&&end=2&by=device",
        "metric=cpu.usage&st%61rt=1&end=%32&by=device",
    ],
)
def test_a_query_is_read_the_same_however_it_is_written(query):
    given = read(query)
    assert (given.read_texts("metric"), given.read_time("start"), given.read_time("end")) == (("cpu.usage",), 1, 2)
    assert given.read_text("by") == "device"


@pytest.mark.parametrize("name", ["start", "by"])
@pytest.mark.parametrize("again", ["{0}=1", "%{1:x}{2}=1"])
def test_a_parameter_that_is_given_twice_is_refused_however_it_is_written(name, again):
    repeated = again.format(name, ord(name[0]), name[1:])
    for order in ((f"{name}=1", repeated), (repeated, f"{name}=1")):
        with pytest.raises(InvalidRequestError) as refused:
            read("&".join(("metric=cpu.usage", *order)))
        assert refused.value.field == name


def test_a_time_that_is_not_given_is_none():
    assert read("metric=cpu.usage&start=1").read_time("start") == 1
    assert read("metric=cpu.usage").read_time("start") is None
    assert read("metric=cpu.usage&start=").read_time("start") is None
