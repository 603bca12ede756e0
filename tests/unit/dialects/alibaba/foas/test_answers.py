import json
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.foas.answers import make_metrics_answer, reply
from jobmeter.dialects.alibaba.foas.lines import Drawn
from jobmeter.dialects.base import Context
from jobmeter.dialects.base.request import Request

TEXT = st.text(max_size=30)


def _call(accept="", client=""):
    headers = (("accept", accept),) if accept else ()
    return Request(call=Call("POST", "/", "", (*headers, ("x-sdk-client", client))), context=Context(0, "ID"))


def _line(name="m", values=(1.5, 20.0)):
    return Drawn(name, {"replica": "a"}, np.arange(len(values), dtype=np.int64) + 1574247000, np.array(values))


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("application/octet-stream", "application/json"),
        ("text/html, image/gif, *; q=.2, */*; q=.2", "application/json"),
        ("application/json, application/xml", "application/json"),
        ("application/xml", "application/xml"),
        ("Application/XML;q=0.9, */*", "application/xml"),
        ("text/xml", "text/xml"),
    ],
)
def test_the_form_is_chosen_by_accept(accept, kind):
    answer = make_metrics_answer(_call(accept), "GetInstanceMetric", [_line()])
    assert answer.content_type == f"{kind};charset=utf-8"
    assert dict(answer.headers)["x-acs-request-id"] == "ID"


def test_xml_of_the_document_has_bare_seconds_and_one_root():
    answer = make_metrics_answer(_call("application/xml"), "GetInstanceMetric", [_line(), _line("n")])
    text = answer.body.decode()
    assert text.startswith("<GetInstanceMetricResponse><requestId>ID</requestId><metrics><metricName>m</metricName>")
    assert "<dps><1574247000>1.5</1574247000><1574247001>2E+1</1574247001></dps>" in text
    assert text.count("<metrics>") == 2


@given(st.lists(TEXT, max_size=3), st.sampled_from(["text/xml", "application/xml"]))
def test_other_xml_is_well_formed_whatever_the_names(names, accept):
    client = "Java/2.0.0" if accept == "application/xml" else ""
    answer = make_metrics_answer(_call(accept, client), "GetInstanceMetric", [_line(n) for n in names])
    root = ET.fromstring(answer.body.decode())
    assert root.tag == "GetInstanceMetricResponse"
    metrics = root.findall("Metrics/Metric" if client else "metrics")
    assert len(metrics) == len(names)
    for metric in metrics:
        points = {point.tag: point.text for point in metric.findall("Dps/*" if client else "dps/*")}
        assert points == {"_1574247000": "1.5", "_1574247001": "2E+1"}


@given(st.dictionaries(st.sampled_from(["Id", "Name", "Flag"]), TEXT | st.integers() | st.booleans(), max_size=3))
def test_a_plain_answer_is_the_same_in_both_forms(body):
    in_json = json.loads(reply(_call(), "GetJob", {"Job": body}).body)
    assert in_json == {"RequestId": "ID", "Job": body}
    root = ET.fromstring(reply(_call("text/xml"), "GetJob", {"Job": body}).body.decode())
    job = root.find("Job")
    assert job is not None
    assert {part.tag for part in job} == set(body)
