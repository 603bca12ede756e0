import webbrowser

import pytest

RESOLVED = {"id": "train-7", "name": "train", "project": "team-a", "state": "Running"}


@pytest.fixture
def link(server):
    server.on("/session/link", {"code": "c0de", "expires": 1}, method="POST")


@pytest.fixture
def opened(monkeypatch):
    found: list[str] = []

    def open_link(url: str) -> bool:
        found.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", open_link)
    return found


def test_without_a_display_the_link_is_printed(server, run, link, opened, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert run("open").stdout == f"{server.url}/#/open?code=c0de\n"
    assert opened == []


def test_a_job_is_found_as_in_every_verb_and_its_project_is_in_the_link(server, run, link, opened):
    server.on("/resolve", RESOLVED)
    assert run("open", "last", "--print").stdout == f"{server.url}/#/open?code=c0de&job=train-7&project=team-a\n"
    assert server.asked[0].parameters["job"] == ["last"]
    assert opened == []


def test_with_a_display_the_browser_gets_the_link_and_no_log_does(server, run, link, opened, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    result = run("open")
    assert opened == [f"{server.url}/#/open?code=c0de"]
    assert "c0de" not in result.output
