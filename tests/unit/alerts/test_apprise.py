"""Tests of messages through the apprise package and local receivers."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from tests.unit.alerts.test_notify import NOW, SECOND, alert, config, step

from jobmeter.alerts import config as config_module
from jobmeter.alerts.apprise_process import _Guard
from jobmeter.alerts.config import Destination
from jobmeter.alerts.deliver import deliver
from jobmeter.errors import ConfigurationError
from jobmeter.model.alert import Message
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.sink import SinkError, SinkRefusedError


class Receiver:
    """Web server that records posts. The path selects the reply: ``/500``, or ``/to/ADDRESS`` for a redirect."""

    def __init__(self):
        bodies = self.bodies = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(302 if "/to/" in self.path else int(self.path.strip("/") or 200))
                if "/to/" in self.path:
                    self.send_header("Location", f"http://{self.path.rpartition('/')[2]}/")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path=""):
        return f"json://127.0.0.1:{self.server.server_port}{path}"


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def settings(*urls):
    entries = ", ".join(f"{{url: '{url}', send_resolved: true}}" for url in urls)
    return f"allow: [127.0.0.1]\nroute: {{receiver: r}}\nreceivers: [{{name: r, apprise_configs: [{entries}]}}]"


def send(url, allow=("127.0.0.1",)):
    (destination,) = config(settings(url)).destinations
    body = json.dumps({"subject": "one\nline", "text": "It is down"})
    deliver(
        destination,
        Message(destination="d", body=body, created=1, id=1),
        DestinationPolicy.from_settings(allow),
        lambda *_: "",
        lambda _: (),
    )


def test_a_group_of_alerts_is_sent(receiver):
    found = config(settings(receiver.url()))
    ((name, _),) = step(found, [alert(job_id="j")], {}, NOW + 40 * SECOND)
    assert (name, receiver.bodies) == ("r/apprise/0", [])
    send(receiver.url())
    (body,) = receiver.bodies
    assert (body["title"], body["message"]) == ("one line", "It is down")


def test_a_service_that_fails_gets_the_message_again(receiver):
    with pytest.raises(SinkError, match="500") as raised:
        send(receiver.url("/500"))
    assert not isinstance(raised.value, SinkRefusedError)


@pytest.mark.parametrize("allow", [(), ("hooks.example.org",), ("10.0.0.0/8",)])
def test_an_address_that_the_settings_do_not_allow_gets_nothing(receiver, allow):
    with pytest.raises(SinkRefusedError, match=r"do not allow the address 127\.0\.0\.1"):
        send(receiver.url(), allow)
    assert receiver.bodies == []


def test_a_redirect_leads_to_no_other_address(receiver):
    with pytest.raises(SinkRefusedError, match=r"127\.0\.0\.2"):
        send(receiver.url("/to/127.0.0.2:9"))


def test_a_redirect_to_another_name_does_not_profit_from_the_first_one():
    guard = _Guard(DestinationPolicy.from_settings(["hooks.example.org", "10.1.0.0/16"]))
    for name, address in (("hooks.example.org", "8.8.8.8"), (b"hooks.example.org", "8.8.4.4"), ("inside", "10.1.0.5")):
        guard("socket.getaddrinfo", (name, 443, 0, 1, 0))
        guard("socket.connect", (None, (address, 443)))
    guard("socket.getaddrinfo", ("other.example.org", 443, 0, 1, 0))
    with pytest.raises(PermissionError, match=r"the address 8\.8\.8\.8 of other\.example\.org"):
        guard("socket.connect", (None, ("8.8.8.8", 443)))


def test_a_service_sends_no_datagrams(receiver):
    with pytest.raises(SinkRefusedError, match="sendto"):
        send("rsyslog://127.0.0.1")


def test_a_wrong_address_is_refused_with_its_place():
    with pytest.raises(ConfigurationError, match="does not understand the url of r/apprise/1;"):
        config(settings("json://127.0.0.1", "nonsense", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(config_module, "is_installed", lambda: False)
    with pytest.raises(ConfigurationError, match=r"install jobmeter\[apprise\]"):
        config(settings("json://127.0.0.1"))


def test_the_address_is_not_shown():
    destination = config(settings("json://user:s3cret@127.0.0.1")).destinations[0]
    assert isinstance(destination, Destination)
    assert "s3cret" not in repr(destination)
