"""Delivers messages to their destinations, only to addresses that the settings allow."""

import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

import msgspec
from msgspec.structs import replace

from jobmeter.alerts.apprise_process import notify
from jobmeter.alerts.config import AppriseUrl, Destination, Email, Http
from jobmeter.alerts.messages import Mail
from jobmeter.model.alert import Message
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.http import TIMEOUT_SECONDS, SinkEndpoint, check_reply
from jobmeter.ship.sink import SinkError, SinkRefusedError

USER = Callable[[str, str], str]
"""Function that returns the user of a job, by project and id; empty if unknown."""
EVIDENCE = Callable[[Mail], Sequence[str]]
"""Function that returns the evidence for the finding that a mail is about, one sentence each."""
_MOST_EVIDENCE, _MOST_SENTENCE = 10, 300
"""Most sentences of evidence in a mail, and most characters of each."""
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_JSON = "application/json"
_MOST_SUBJECT = 300
_PERMANENT = range(500, 600)


def deliver(
    destination: Destination, message: Message, guard: DestinationPolicy, user_of: USER, evidence_of: EVIDENCE
) -> None:
    """Deliver a message. Raises SinkRefusedError for a final refusal, else SinkError."""
    if isinstance(destination.target, Http):
        _post(destination.target, message, guard)
        return
    mail = msgspec.json.decode(message.body, type=Mail)
    if isinstance(destination.target, AppriseUrl):
        notify(destination.target.url, " ".join(mail.subject.split())[:_MOST_SUBJECT], mail.text, guard)
    else:
        _send_mail(destination.target, _addressed(destination.target, mail, user_of, evidence_of), message, guard)


def _post(target: Http, message: Message, guard: DestinationPolicy) -> None:
    endpoint = SinkEndpoint(target.url, guard, query=True)
    headers = {"Content-Type": _JSON, "User-Agent": "jobmeter", "Idempotency-Key": f"{message.created}-{message.id}"}
    if target.authorization:
        headers["Authorization"] = target.authorization
    parts = endpoint.parts
    try:
        reply = endpoint.request(
            "POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), message.body.encode(), headers
        )
        check_reply(reply, endpoint.host)
    finally:
        endpoint.close()


class _Guarded(smtplib.SMTP):
    """SMTP over a connection to an allowed address."""

    def __init__(self, guard: DestinationPolicy, hello: str) -> None:
        super().__init__(timeout=TIMEOUT_SECONDS, local_hostname=hello)
        self._guard = guard

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._guard.connect(host, port, timeout)


def _addressed(target: Email, mail: Mail, user_of: USER, evidence_of: EVIDENCE) -> Mail:
    """Return the mail for the user of a job: with the user's address, and the evidence for the finding."""
    if not target.domain:
        return mail
    user = user_of(mail.project, mail.job)
    if not _USER.fullmatch(user):
        raise SinkRefusedError(f"job {mail.job} has no user with an address")
    lines = [f"- {' '.join(one.split())[:_MOST_SENTENCE]}" for one in evidence_of(mail)[:_MOST_EVIDENCE]]
    evidence = "\n".join(["", f"Evidence for {mail.rule}:", *lines, ""]) if lines else ""
    return replace(mail, to=f"{user}@{target.domain}", text=mail.text + evidence)


def _send_mail(target: Email, mail: Mail, message: Message, guard: DestinationPolicy) -> None:
    to = mail.to
    try:
        with _Guarded(guard, target.hello) as server:
            server.connect(target.host, target.port)
            if target.tls:
                server._host = target.host  # type: ignore[attr-defined]  # noqa: SLF001 - the name in the certificate
                server.starttls(context=ssl.create_default_context())
            if target.user:
                server.login(target.user, target.password)
            server.send_message(_letter(target.sender, to, mail, message))
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        raise _failure(codes)(f"{target.host} refuses the recipient {to}") from error
    except smtplib.SMTPDataError as error:
        raise _failure([error.smtp_code])(f"{target.host} did not accept the mail: {str(error)[:200]}") from error
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise SinkError(f"{target.host} did not accept the mail: {str(error)[:200]}") from error


def _letter(sender: str, to: str, mail: Mail, message: Message) -> EmailMessage:
    letter = EmailMessage()
    letter["From"], letter["To"] = sender, to
    letter["Subject"] = " ".join(mail.subject.split())[:_MOST_SUBJECT]
    letter["Date"] = formatdate(message.created / 1000)
    letter["Message-ID"] = make_msgid(f"{message.created}.{message.id}", "jobmeter")
    letter.set_content(mail.text)
    return letter


def _failure(codes: Iterable[int]) -> type[SinkError]:
    """Return the error for SMTP replies: a permanent refusal of one message must not delay later ones."""
    return SinkRefusedError if all(code in _PERMANENT for code in codes) else SinkError
