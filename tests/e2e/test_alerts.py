"""Tests of alerts of a real server: deliveries to real receivers, kill -9, and Alertmanager's own tools."""

import json
import os
import signal
import ssl
import subprocess
import threading
from contextlib import contextmanager

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from tests.support.certificates import make
from tests.support.clusters import free_port
from tests.support.frames import records
from tests.support.needs import needs
from tests.support.processes import ServerProcess
from tests.support.receivers import receiving
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

RULES = """
groups:
  - name: mine
    interval: 1s
    rules:
      - {alert: Always, expr: vector(1), labels: {severity: page}, annotations: {summary: It is so}}
"""


def settings(folder, receiver, repeat="4h"):
    (folder / "rules.yml").write_text(RULES)
    (folder / "alerts.yml").write_text(
        f"allow: [127.0.0.1]\nroute: {{receiver: team, group_wait: 0s, repeat_interval: {repeat}}}\n"
        f"receivers: [{{name: team, {receiver}}}]\n"
    )
    return ("--alert-rules", str(folder / "rules.yml"), "--alert-config", str(folder / "alerts.yml"))


def serving(folder, *options, **environment):
    return ServerProcess(folder / "data", *options, environment={"JOBMETER_ALERT_SHIPPED": "off", **environment})


def get(server, path):
    reply = server.call("GET", path)
    assert reply.status == 200, reply.body
    return reply.json()


def test_a_kill_between_decision_and_delivery_loses_nothing(tmp_path):
    with receiving() as first:
        port = first.port
    server = serving(tmp_path, *settings(tmp_path, f"webhook_configs: [{{url: 'http://127.0.0.1:{port}/x'}}]"))
    server.start()
    try:
        # Nobody listens: the server stores the message without delivering it.
        wait_until(lambda: "was not delivered" in server.output(), "a failed delivery")
        server.kill()
        with receiving(port=port) as receiver:
            server.start()
            wait_until(lambda: receiver.requests, "the message")
            body = json.loads(receiver.bodies()[0])
            assert [one["labels"]["alertname"] for one in body["alerts"]] == ["Always"]
            wait_until(lambda: get(server, "/api/v2/alerts"), "the alert")
            assert len(receiver.requests) == 1
    finally:
        server.kill()


def test_a_kill_after_the_delivery_repeats_one_message(tmp_path):
    kill = threading.Event()

    def answer(taken):
        if not kill.is_set():
            kill.set()
            os.killpg(server.process.pid, signal.SIGKILL)
        return 204, {}, b""

    with receiving(answer) as receiver:
        url = f"webhook_configs: [{{url: '{receiver.url}/x'}}]"
        server = serving(tmp_path, *settings(tmp_path, url, "3s"))
        server.start()
        try:
            wait_until(kill.is_set, "the message")
            server.process.wait(30)
            server.start()
            # The interrupted message repeats; later messages arrive once each.
            wait_until(lambda: len(receiver.requests) >= 4, "the message again, and two more")
        finally:
            server.kill()
        names = [taken.headers["idempotency-key"] for taken in receiver.requests]
        assert names[0] == names[1]
        assert len(set(names)) == len(names) - 1


class Letters:
    """Recipient and text of each mail that a server accepted."""

    def __init__(self):
        self.taken = []

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 - the name that aiosmtpd calls
        self.taken += [(to, envelope.content.decode()) for to in envelope.rcpt_tos]
        return "250 OK"


@contextmanager
def mail(certificates):
    """Yield the port and the letters of a mail server that requires TLS and the password of ``jobmeter``."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.certificate, certificates.key)
    letters = Letters()

    def authenticate(server, session, envelope, mechanism, given):
        return AuthResult(success=(given.login, given.password) == (b"jobmeter", b"secret"))

    controller = Controller(
        letters,
        "127.0.0.1",
        free_port(),
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=authenticate,
    )
    controller.start()
    try:
        yield controller.port, letters
    finally:
        controller.stop()


def test_mail_goes_to_a_list_and_to_the_owner_of_a_job(tmp_path):
    certificates = make(tmp_path)
    (tmp_path / "password").write_text("secret\n")
    with mail(certificates) as (port, letters):
        smtp = (
            f"smarthost: '127.0.0.1:{port}', from: j@x.org, auth_username: jobmeter, "
            f"auth_password_file: {tmp_path}/password"
        )
        options = settings(
            tmp_path,
            f"email_configs: [{{to: ops@x.org, {smtp}}}], owner_configs: [{{domain: x.org, {smtp}}}]",
            "2s",
        )
        (tmp_path / "rules.yml").write_text(
            "groups: [{name: g, interval: 1s, rules: [{alert: Ran, expr: 'jobmeter_job_info == 1', "
            "annotations: {summary: 'Job {{ $labels.job_id }} runs'}}]}]"
        )
        server = serving(tmp_path, *options, SSL_CERT_FILE=str(certificates.ca)).start()
        try:
            job = {"job_id": "train-1", "state": "Running", "user": "ada"}
            odd = {"job_id": "odd", "state": "Running", "user": "x@evil.org"}
            assert server.ingest(records({"jobs": [job, odd]})).status == 200
            wait_until(lambda: sum(to == "ops@x.org" for to, _ in letters.taken) >= 3, "letters to the list")
        finally:
            server.kill()
        assert [to for to, _ in letters.taken if to != "ops@x.org"] == ["ada@x.org"]
        own = next(letter for to, letter in letters.taken if to == "ada@x.org")
        assert "Subject: [FIRING:1] Job train-1 runs" in own
        assert "refused and dropped: job odd has no user with an address" in server.output()


def test_amtool_reads_alerts_and_writes_silences(tmp_path):
    needs("amtool")
    with receiving() as receiver:
        server = serving(tmp_path, *settings(tmp_path, f"webhook_configs: [{{url: '{receiver.url}'}}]")).start()
        try:
            (tmp_path / "http.yml").write_text(f"authorization: {{credentials: {server.token}}}\n")

            def amtool(*arguments):
                done = subprocess.run(
                    [
                        *("amtool", f"--alertmanager.url={server.url}", f"--http.config.file={tmp_path}/http.yml"),
                        *arguments,
                    ],
                    capture_output=True,
                    text=True,
                    check=False,
                    env={**os.environ, "HOME": str(tmp_path)},
                )
                assert done.returncode == 0, done.stderr + done.stdout
                return done.stdout

            wait_until(lambda: "Always" in amtool("alert", "query"), "the alert")
            name = amtool("silence", "add", "alertname=Always", "--author=ada", "--comment=known", "-d", "1h").strip()
            (silenced,) = json.loads(amtool("-o", "json", "alert", "query", "--silenced"))
            assert silenced["status"] == {"inhibitedBy": [], "silencedBy": [name], "state": "suppressed"}
            (silence,) = json.loads(amtool("-o", "json", "silence", "query"))
            assert (silence["id"], silence["createdBy"], silence["comment"]) == (name, "ada", "known")
            amtool("alert", "add", "Posted", "node=n1", "--annotation=summary=by hand")
            wait_until(lambda: "Posted" in amtool("alert", "query", "node=n1"), "the posted alert")
            amtool("silence", "expire", name)
            assert json.loads(amtool("-o", "json", "silence", "query")) == []
            assert "0.25.0" in amtool("config", "show") or "team" in amtool("config", "show")
            assert "Always" in amtool("-o", "json", "alert", "query", "severity=page")
            assert json.loads(amtool("-o", "json", "alert", "query", "severity=none")) == []
        finally:
            server.kill()


def test_an_alertmanager_takes_alerts(tmp_path):
    needs("prometheus-alertmanager")
    (tmp_path / "am.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    with receiving() as free:
        port = free.port
    alertmanager = subprocess.Popen(
        [
            *("prometheus-alertmanager", f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/am"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = serving(tmp_path, *settings(tmp_path, f"alertmanager_configs: [{{url: 'http://127.0.0.1:{port}'}}]"))

    def found():
        done = subprocess.run(
            ["amtool", f"--alertmanager.url=http://127.0.0.1:{port}", "-o", "json", "alert", "query"],
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else []

    try:
        server.start()
        wait_until(found, "the alert")
        assert found()[0]["labels"] == {"alertname": "Always", "severity": "page"}
        assert found()[0]["annotations"] == {"summary": "It is so"}
    finally:
        server.kill()
        alertmanager.kill()
        alertmanager.wait()


@pytest.mark.parametrize("receiver", ["webhook_configs: [{url: 'http://169.254.169.254/x'}]"])
def test_an_address_that_is_not_allowed_gets_nothing(tmp_path, receiver):
    server = serving(tmp_path, *settings(tmp_path, receiver)).start()
    try:
        wait_until(lambda: "which the settings do not allow" in server.output(), "the refusal")
    finally:
        server.kill()


def test_a_wrong_file_stops_the_start_with_its_line(tmp_path):
    options = settings(tmp_path, "webhook_configs: []")
    (tmp_path / "rules.yml").write_text("groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up >\n")
    with pytest.raises(AssertionError, match=r"rules\.yml:5: groups\[0\]\.rules\[0\]\.expr: parse error"):
        serving(tmp_path, *options).start()
