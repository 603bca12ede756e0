"""Tests of mail: its headers, its recipients, and the replies of a server that refuses it."""

import email
import email.policy
import smtplib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.alerts import deliver as module
from jobmeter.alerts.config import Destination, Email
from jobmeter.alerts.deliver import deliver
from jobmeter.alerts.messages import Mail
from jobmeter.model.alert import Message
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.sink import SinkError, SinkRefusedError


class Server:
    """Mail server that accepts letters or raises an error."""

    def __init__(self, error=None):
        self.letters, self.error = [], error

    def __call__(self, *_):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def connect(self, *_):
        return 220, b""

    def send_message(self, letter):
        if self.error is not None:
            raise self.error
        self.letters.append(email.message_from_bytes(letter.as_bytes(), policy=email.policy.default))


def send(server, subject="s", text="t", user=None, evidence=(), **options):
    target = Email(sender="jobmeter@x.org", host="mail", port=25, tls=False, **({"to": "ops@x.org"} | options))
    destination = Destination(name="d", receiver="r", kind="email", target=target, send_resolved=False)
    body = msgspec.json.encode(
        Mail(subject=subject, text=text, to=target.to, project="p", job="j", rule="oom")
    ).decode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_Guarded", server)
        deliver(
            destination,
            Message(destination="d", body=body, created=1, id=1),
            DestinationPolicy.from_settings([]),
            lambda *_: user or "",
            lambda mail: evidence if mail.rule == "oom" else (),
        )


@given(st.text(), st.text())
def test_texts_add_no_header(subject, text):
    server = Server()
    send(server, f"A\r\nBcc: x@evil.org{subject}", f"Bcc: x@evil.org\r\n\r\n{text}")
    (letter,) = server.letters
    wanted = {"From", "To", "Subject", "Date", "Message-ID", "Content-Type", "Content-Transfer-Encoding"}
    assert set(letter.keys()) == wanted | {"MIME-Version"}
    assert letter["To"] == "ops@x.org"


@pytest.mark.parametrize("user", ["", "a@b, c", "a@b", "a\r\nBcc: x", "a b", '"a"', "a,b", "x" * 65, "ä", "a\n"])
def test_a_user_that_is_no_name_gets_no_mail(user):
    server = Server()
    with pytest.raises(SinkRefusedError):
        send(server, user=user, to="", domain="x.org")
    assert server.letters == []


def test_a_user_gets_mail_at_the_domain():
    server = Server()
    send(server, user="ada.l+jobs", to="", domain="x.org")
    assert [letter["To"] for letter in server.letters] == ["ada.l+jobs@x.org"]


def test_a_user_gets_the_evidence_bounded_and_a_list_does_not():
    server, evidence = Server(), ["worker-0 was at 7.9 GiB of 8 GiB", f"line\n{'x' * 400}", *["more"] * 20]
    send(server, user="ada", to="", domain="x.org", evidence=evidence)
    send(server, evidence=evidence)
    own, of_list = (letter.get_content() for letter in server.letters)
    assert own.startswith("t\nEvidence for oom:\n- worker-0 was at 7.9 GiB of 8 GiB\n- line xxx")
    assert own.count("\n- ") == 10
    assert max(map(len, own.splitlines())) == len("- ") + 300
    assert of_list.strip() == "t"


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (smtplib.SMTPDataError(554, b"spam"), True),
        (smtplib.SMTPDataError(451, b"later"), False),
        (smtplib.SMTPRecipientsRefused({"a": (550, b""), "b": (553, b"")}), True),
        (smtplib.SMTPRecipientsRefused({"a": (550, b""), "b": (450, b"")}), False),
        (smtplib.SMTPSenderRefused(550, b"", "j"), False),
        (smtplib.SMTPServerDisconnected("away"), False),
        (ConnectionResetError(), False),
    ],
)
def test_only_a_final_refusal_drops_a_mail(error, is_final):
    with pytest.raises(SinkError) as raised:
        send(Server(error))
    assert isinstance(raised.value, SinkRefusedError) is is_final
