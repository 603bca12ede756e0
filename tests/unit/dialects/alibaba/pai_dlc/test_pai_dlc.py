import json
from pathlib import Path

import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.pai_dlc import PAI_DLC
from jobmeter.dialects.base import Context, drive
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError, ThrottledError, UnauthenticatedError
from jobmeter.testing.dialect import ERRORS, REQUEST_ID, DialectTests


class TestPaiDlc(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self):
        return PAI_DLC


def _error(error):
    answer = PAI_DLC.render_error(Call("GET", "/", "", (("host", "http://h:1/"),)), Context(0, REQUEST_ID), error)
    return answer, json.loads(answer.body)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_body_is_what_the_sdk_reads(error):
    answer, body = _error(error)
    assert set(body) == {"RequestId", "HostId", "Code", "Message"}
    assert body["RequestId"] == REQUEST_ID == dict(answer.headers)["x-acs-request-id"]
    assert body["HostId"] == "http://h:1/"
    assert body["Code"]
    assert body["Message"]


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        ("missing", 400, "IncompleteSignature"),
        ("malformed", 400, "IncompleteSignature"),
        ("incomplete-signature", 400, "IncompleteSignature"),
        ("bad-signature", 400, "SignatureDoesNotMatch"),
        ("unknown-key", 404, "InvalidAccessKeyId.NotFound"),
        ("revoked", 403, "InvalidAccessKeyId.Inactive"),
        ("stale", 400, "InvalidTimeStamp.Expired"),
        ("replayed", 400, "SignatureNonceUsed"),
    ],
)
def test_a_credential_that_does_not_hold(reason, status, code):
    answer, body = _error(UnauthenticatedError("no", reason))
    assert (answer.status, body["Code"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("PUT", "/api/v1/jobs/j", "Priority"),
        ("PUT", "/api/v1/jobs/j", "JobSpecs"),
        ("POST", "/api/v1/jobs", "JobMaxRunningTimeMinutes"),
        ("POST", "/api/v1/jobs", "Envs"),
    ],
)
def test_an_empty_text_is_no_number_list_or_object(method, path, name):
    body = {"DisplayName": "a", "JobType": "TFJob", "UserCommand": "c", "JobSpecs": [{"PodCount": 1}], name: ""}
    call = Call(method, path, "", (("host", "h"),), json.dumps(body).encode())
    match = PAI_DLC.find_operation(call)
    assert match is not None
    with pytest.raises(InvalidRequestError) as refused:
        drive(match.operation.answer(call, Context(0, REQUEST_ID, match.path)), _no_question)
    assert refused.value.field == name


def _no_question(question):
    raise AssertionError(question)


def test_an_old_core_needs_a_colon_in_the_message_of_a_wrong_signature():
    _, body = _error(UnauthenticatedError("no", "bad-signature"))
    assert ":" in body["Message"]


def test_every_core_learns_when_to_come_back():
    answer, body = _error(ThrottledError("busy", 1500))
    headers = dict(answer.headers)
    assert (answer.status, body["Code"]) == (429, "Throttling.User")
    assert headers["x-acs-retry-after"] == "1500"
    assert headers["Retry-After"] == "2"
    assert dict(part.split(":") for part in headers["x-ratelimit-user-api"].split(","))["TimeLeft"] == "1500"


def test_our_names_of_fields_become_theirs():
    _, body = _error(InvalidRequestError("the step makes too many buckets", "step"))
    assert body["Message"] == "TimeStep: the step makes too many buckets"


def test_an_unknown_job_is_named():
    answer, body = _error(NotFoundError("there is no job j1", "job", "j1"))
    assert (answer.status, body["Code"]) == (404, "InvalidJobId.NotFound")
    assert "JobId j1" in body["Message"]


def test_a_bug_reveals_nothing():
    answer, body = _error(JobmeterError("password=hunter2"))
    assert (answer.status, body["Code"]) == (500, "InternalError")
    assert "hunter2" not in body["Message"]


def test_another_product_of_the_vendor_is_left_alone():
    call = Call("GET", "/api/v1/tokens", "", (("x-acs-version", "2022-01-12"), ("x-acs-action", "GetToken")))
    assert PAI_DLC.find_operation(call) is None
