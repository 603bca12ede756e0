"""Tests that each API refuses an unreadable request in its own format."""

import pytest
from tests.support.asgi import call
from tests.support.serving import serving

from jobmeter.dialects.registry import list_dialects
from jobmeter.server.native.router import BASE, ENDPOINTS

MANY = "&".join(f"a{number}=1" for number in range(100_000))
VERSIONS = {"cms": "2019-01-01", "eflo": "2022-12-15"}
"""Version parameter of each dialect whose operations are at /."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = serving(tmp_path_factory.mktemp("refusals") / "data")
    yield made
    made.application.close()


def _operations():
    for dialect in list_dialects():
        for one in dialect.operations:
            # Only their names distinguish the operations at /.
            query = f"?Action={one.name}&Version={VERSIONS[dialect.name]}&" if one.path == "/" else "?"
            yield pytest.param(dialect.name, one.method, _filled(one.path) + query, id=f"{dialect.name} {one.name}")


def _filled(path):
    return "/".join("x" if part.startswith("{") else part for part in path.split("/"))


@pytest.mark.parametrize(("dialect", "method", "path"), list(_operations()))
def test_a_query_of_too_many_parameters_is_refused_by_its_dialect(server, dialect, method, path):
    reply = call(server.application, method, path + MANY)
    assert reply.status == 400
    assert b"1000 parameters" in reply.body
    text = server.application.services.telemetry.render().decode()
    assert f'jobmeter_requests_total{{api="{dialect}",status="400"}} ' in text


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_a_query_of_too_many_parameters_is_refused_by_our_own_api(server, endpoint):
    reply = call(server.application, endpoint.method, f"{BASE}{_filled(endpoint.path)}?{MANY}")
    assert (reply.status, reply.json()["error"]["field"]) == (400, "query")


@pytest.mark.parametrize("path", ["/", "/nowhere", "/healthz", "/metrics"])
def test_a_query_of_too_many_parameters_is_refused_elsewhere(server, path):
    reply = call(server.application, "GET", f"{path}?{MANY}", headers={"Authorization": "acs x:y"})
    assert reply.status == 400


@pytest.mark.parametrize("name", ["Action", "Signature", "Token"])
def test_what_comes_behind_too_many_parameters_is_not_read(server, name):
    reply = call(server.application, "GET", f"/?{MANY}&{name}=x")
    assert reply.status == 400
