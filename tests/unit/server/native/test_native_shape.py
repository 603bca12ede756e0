"""Tests of the properties that every route shares: authentication, the form of refusals, the description."""

import base64
import hashlib
import json
import re
from html import escape
from html.parser import HTMLParser

import pytest
from tests.support.frames import FRAMES, samples
from tests.support.serving import serving

from jobmeter.server.native import router
from jobmeter.server.native.api_page import make_api_page
from jobmeter.server.native.router import BASE, ENDPOINTS

_BODIES = {
    "recordJobs": b'{"job_id": "j9"}',
    "shareJob": b'{"expires_in": 60}',
    "createKey": b'{"name": "n", "role": "reader"}',
    "pushJobLogs": b'{"lines": [{"text": "hello"}]}',
    "setRetention": b'{"raw_days": 1, "minute_days": 1, "hour_days": 1}',
    "backup": b'{"directory": "/nowhere/at/all"}',
    "moveStore": b'{"to": "nowhere://at-all"}',
    "ingest": samples([({"metric": "cpu.usage", "job": "j9", "replica": "worker-0"}, [])]),
}
_WRITING = [one for one in ENDPOINTS if one.action and not one.action.endswith(":read")]
_ADMIN = [one for one in ENDPOINTS if one.action in {"keys:read", "server:read"}]
# The next attempt of an unknown job is 0, even if another project has a job of that id. A run's token precedes its
# job's record.
_BEFORE = {"getNextAttempt", "createRunToken"}
_OF_A_JOB = [one for one in ENDPOINTS if "{job}" in one.path and one.name not in _BEFORE]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = serving(tmp_path_factory.mktemp("shape") / "data")
    yield made
    made.application.close()


def _path(endpoint, job="j1"):
    path = endpoint.path.replace("{job}", job).replace("{node}", "n1")
    path = path.replace("{key}", "key-1").replace("{project}", "default")
    needed = {"metric": "cpu.usage", "job": job, "uid": "u1"}
    given = [f"{query.name}={needed[query.name]}" for query in endpoint.queries if query.required]
    return path + ("?" if given else "") + "&".join(given)


def _call(server, endpoint, key=None, **options):
    headers = {"Content-Type": FRAMES} if endpoint.name == "ingest" else {}
    return server.call(endpoint.method, _path(endpoint, **options), _BODIES.get(endpoint.name, b""), key, headers)


def _check_envelope(reply, status, code):
    body = reply.json()
    assert reply.status == status
    assert set(body) == {"error", "request_id"}
    assert set(body["error"]) <= {"code", "message", "field"}
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    assert body["request_id"] == reply.headers["x-request-id"]
    assert re.fullmatch(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", body["request_id"])
    assert reply.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.action], ids=lambda one: one.name)
@pytest.mark.parametrize("credential", [None, "Bearer nothing", "Basic YTpi", "Bearer", "jm_"])
def test_without_a_key_nothing_is_reported(server, endpoint, credential):
    headers = {"Authorization": credential} if credential else {}
    path = _path(endpoint)
    mark = "&" if "?" in path else "?"
    reply = server.raw(endpoint.method, f"{BASE}{path}{mark}unknown=1", b"{bad", headers)
    _check_envelope(reply, 401, "unauthenticated")
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("endpoint", _WRITING + _ADMIN, ids=lambda one: one.name)
def test_a_reader_changes_nothing(server, endpoint):
    _check_envelope(_call(server, endpoint, server.key("reader")), 403, "forbidden")


@pytest.mark.parametrize("endpoint", _OF_A_JOB, ids=lambda one: one.name)
def test_a_job_of_another_project_does_not_exist(server, endpoint):
    assert server.call("POST", "/jobs", {"job_id": "j1", "project": "theirs"}).status == 200
    stranger = server.key("admin", "ours")
    _check_envelope(_call(server, endpoint, stranger), 404, "not_found")
    _check_envelope(_call(server, endpoint, server.admin, job="j2"), 404, "not_found")
    missing, foreign = _call(server, endpoint, stranger, job="j2").json(), _call(server, endpoint, stranger).json()
    assert missing["error"]["message"].replace("j2", "j1") == foreign["error"]["message"]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.name)
def test_an_unknown_query_parameter_is_named(server, endpoint):
    mark = "&" if "?" in _path(endpoint) else "?"
    reply = server.call(endpoint.method, f"{_path(endpoint)}{mark}metrik=1", _BODIES.get(endpoint.name, b""))
    _check_envelope(reply, 400, "invalid_request")
    assert reply.json()["error"]["field"] == "metrik"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.name)
def test_another_method_is_refused_with_those_there_are(server, endpoint):
    reply = server.call("PATCH", _path(endpoint))
    _check_envelope(reply, 405, "method_not_allowed")
    assert endpoint.method in reply.headers["allow"].split(", ")
    options = server.call("OPTIONS", _path(endpoint))
    assert options.status == 200
    assert endpoint.method in options.headers["allow"].split(", ")


@pytest.mark.parametrize("path", ["/nope", "/jobs/a%2Fmetrics", "/jobs//metrics", "/jobs/a/b/c", "", "/"])
def test_other_paths_are_not_found(server, path):
    _check_envelope(server.call("GET", path), 404, "not_found")


@pytest.mark.parametrize("path", ["/nope", "/api/v9/x", "/api/jobmeter/v2/jobs", "//", "/metrics/x", "*"])
def test_paths_outside_are_refused_in_the_same_form(server, path):
    _check_envelope(server.raw("GET", path), 404, "not_found")


def test_the_root_only_reads(server):
    for path in ("/", "/healthz", "/readyz", "/metrics"):
        assert server.raw("GET", path).status == 200
        assert server.raw("HEAD", path).body == b""
        _check_envelope(server.raw("POST", path), 405, "method_not_allowed")


def test_a_host_with_a_scheme_is_tolerated(server):
    reply = server.call("GET", "/whoami", headers={"Host": "http://127.0.0.1:8400/"})
    assert reply.json()["role"] == "admin"


def test_head_is_get_without_a_body(server):
    get, head = server.call("GET", "/jobs"), server.call("HEAD", "/jobs")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize("header", ["Authorization: Bearer", "Authorization: Api-Key", "X-Auth-Token:", "Api-Key:"])
def test_a_token_may_come_in_each_of_its_forms(server, header):
    name, _, kind = header.partition(":")
    value = f"{kind.strip()} {server.admin.token}".strip()
    assert server.raw("GET", f"{BASE}/whoami", headers={name: value}).status == 200


def test_the_description_lists_every_route(server):
    reply = server.raw("GET", f"{BASE}/openapi.json")
    document = reply.json()
    described = {
        (method.upper(), path, operation["operationId"])
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }
    routes = {(one.method, BASE + one.path, one.name) for one in ENDPOINTS}
    assert described == routes
    for endpoint in ENDPOINTS:
        operation = document["paths"][BASE + endpoint.path][endpoint.method.lower()]
        given = {(one["in"], one["name"]) for one in operation.get("parameters", ())}
        assert given == {("query", one.name) for one in endpoint.queries} | {("path", name) for name in endpoint.paths}
        assert all(one["description"] for one in operation.get("parameters", ()))
        assert operation["summary"]
        assert bool(endpoint.body or endpoint.body_text) == ("requestBody" in operation)
        assert "200" in operation["responses"]
        assert ("401" in operation["responses"]) or endpoint.action is None


def test_the_description_has_the_fields_of_answers(server):
    document = server.raw("GET", f"{BASE}/openapi.json").json()
    schemas = document["components"]["schemas"]
    job = next(schema for name, schema in schemas.items() if name.endswith("JobBody"))
    assert {"id", "state", "project", "first_sample"} <= set(job["properties"])


def test_the_description_requires_the_fields_that_an_answer_always_has(server):
    schemas = server.raw("GET", f"{BASE}/openapi.json").json()["components"]["schemas"]
    summary, job = schemas["JobSummary"], schemas["JobList"]
    assert set(summary["required"]) == set(summary["properties"])
    assert "findings" not in job["required"]
    assert "points" not in schemas["LineBody"]["required"]
    assert schemas["NewKey"]["required"] == ["name"]


def test_refusals_are_counted_and_written_down(tmp_path):
    server = serving(tmp_path / "data")
    server.raw("GET", f"{BASE}/jobs")
    server.call("POST", "/keys", b"{}", server.key("writer"))
    text = server.raw("GET", "/metrics").body.decode()
    assert 'jobmeter_access_refused_total{reason="missing"} 1.0' in text
    assert 'jobmeter_access_refused_total{reason="forbidden"} 1.0' in text
    lines = [json.loads(line) for line in (tmp_path / "data" / "audit.log").read_text().splitlines()]
    assert [line["reason"] for line in lines] == ["missing", "forbidden"]
    server.application.close()


def test_a_key_that_calls_too_often_learns_when_to_come_back(tmp_path):
    server = serving(tmp_path / "data", rate_limits="listJobs=1:2")
    assert [server.call("GET", "/jobs").status for _ in range(2)] == [200, 200]
    reply = server.call("GET", "/jobs")
    _check_envelope(reply, 429, "throttled")
    assert int(reply.headers["retry-after"]) >= 1
    assert server.call("GET", "/whoami").status == 200
    server.application.close()


@pytest.mark.parametrize(
    ("headers", "field", "code"),
    [
        (
            {"Authorization": "SDK-HMAC-SHA256 Access=a, SignedHeaders=host, Signature=b"},
            "error_code",
            "ModelArts.2836",
        ),
        ({"Authorization": "SDK-HMAC-SHA256 nonsense"}, "error_code", "ModelArts.2836"),
        ({"Authorization": "acs LTAI:c2ln"}, "Code", "InvalidAction.NotFound"),
        ({"Authorization": "ACS3-HMAC-SHA256 Credential=a"}, "Code", "InvalidAction.NotFound"),
    ],
)
def test_a_path_that_nobody_takes_is_refused_in_the_words_of_its_signature(server, headers, field, code):
    reply = server.raw("GET", "/v9/nothing/here", headers=headers)
    assert (reply.status, reply.json()[field]) == (404, code)


def test_what_questions_cost_is_reported(server):
    line = {"time": 1_767_225_590_000, "text": "epoch 1"}
    assert server.call("POST", "/jobs", {"job_id": "told"}).status == 200
    assert server.call("POST", "/jobs/told/logs", {"lines": [line, {**line, "text": "epoch 2"}]}).status == 200
    before = _rows_read(server)
    assert len(server.call("GET", "/jobs/told/logs").json()["lines"]) == 2
    assert server.call("GET", "/jobs/told/logs?format=text").body == b"epoch 1\nepoch 2\n"
    assert _rows_read(server) == before + 4


def _rows_read(server):
    (found,) = re.findall(
        r"^jobmeter_query_rows_total (.*)$", server.raw("GET", "/metrics").body.decode(), re.MULTILINE
    )
    return float(found)


class Read(HTMLParser):
    """Parser for the texts, ids and targets of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "meta":
            self.open.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.targets += [value or "" for name, value in attrs if name in {"href", "src"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_about_the_api_has_every_operation_and_every_object(server):
    reply = server.raw("GET", f"{BASE}/docs")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = reply.body.decode()
    page = Read()
    page.feed(text)
    document = server.raw("GET", f"{BASE}/openapi.json").json()
    assert len(page.ids) == len(set(page.ids))
    assert set(page.ids) == {one.name for one in ENDPOINTS} | set(document["components"]["schemas"])
    # The page loads no resource, and each link goes to a part of this page or to the document.
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert set(page.targets) <= {f"#{name}" for name in page.ids} | {"openapi.json"}
    assert not page.open
    for endpoint in ENDPOINTS:
        assert f"<b>{endpoint.method}</b> {BASE}{escape(endpoint.path)}<" in text
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in reply.headers["content-security-policy"]
    assert len(reply.body) < 200_000
    assert server.raw("POST", f"{BASE}/docs").status == 405


def test_the_page_about_the_api_is_made_once(server, monkeypatch):
    made: list[object] = []

    def make(document):
        made.append(document)
        return make_api_page(document)

    monkeypatch.setattr(router, "make_api_page", make)
    replies = {server.raw("GET", f"{BASE}/docs").body for _ in range(3)}
    assert len(replies) == 1
    assert len(made) <= 1, "an earlier test may have requested the page"
