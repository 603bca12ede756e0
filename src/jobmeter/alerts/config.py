"""Settings of messages in Alertmanager's form: https://prometheus.io/docs/alerting/latest/configuration/."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from jobmeter.alerts.apprise_process import find_invalid_urls, is_installed
from jobmeter.alerts.duration import read_duration
from jobmeter.alerts.intervals import TimeInterval, read_intervals
from jobmeter.alerts.muting import CASCADES, Inhibition, check_matcher, parse_matcher
from jobmeter.alerts.yaml_file import Field, load_file
from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.alert import LabelMatcher
from jobmeter.model.time import DAY, MINUTE, SECOND
from jobmeter.ship.guard import DestinationPolicy
from jobmeter.ship.http import SinkEndpoint
from jobmeter.ship.sink import SinkError

MOST_DESTINATIONS, MOST_ROUTES = 64, 1_000
ALL = "..."
"""Value of ``group_by`` for all labels, so that each alert is a group of its own."""
_TEMPLATED = "texts of messages are fixed here: fields with templates are not supported"
_AUTH = ("auth_username", "auth_password", "auth_password_file")
_SMTP = ("smarthost", "from", "hello", "require_tls", *_AUTH)
_GLOBAL = ("resolve_timeout", *(f"smtp_{name}" for name in _SMTP))
_EMAIL, _OWNER = ("to", "send_resolved", *_SMTP), ("domain", *_SMTP)
_WEBHOOK = ("url", "url_file", "send_resolved", "http_config", "max_alerts")
_TIMES = {"wait_ms": "group_wait", "interval_ms": "group_interval", "repeat_ms": "repeat_interval"}
_MUTED, _ACTIVE = "mute_time_intervals", "active_time_intervals"
_MATCHERS = ("match", "match_re", "matchers")
_ROUTE = ("receiver", "group_by", *_TIMES.values(), *_MATCHERS, _MUTED, _ACTIVE, "continue", "routes")


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """A destination that takes JSON by POST. ``authorization`` is the header, empty for none."""

    url: str
    authorization: str = ""
    most: int = 0
    """Most alerts of a message, 0 for the default."""


class Email(msgspec.Struct, frozen=True, kw_only=True):
    """A destination of mail. Without ``to`` the recipient is the user of an alert's job at ``domain``."""

    to: str = ""
    domain: str = ""
    sender: str
    host: str
    port: int
    tls: bool
    user: str = ""
    password: str = ""
    hello: str = "localhost"


class AppriseUrl(msgspec.Struct, frozen=True):
    """A destination that apprise reaches, for example ``slack://...``."""

    url: str


Target = Http | Email | AppriseUrl
_Reader = Callable[[Field, Mapping[str, Field], str], tuple[Target, bool | None]]


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """Destination of a receiver's messages. ``kind`` is webhook, email, alertmanager, apprise or owner."""

    name: str
    receiver: str
    kind: str
    target: Target
    send_resolved: bool

    def __repr__(self) -> str:
        """Return the name and the kind, without secrets."""
        return f"Destination({self.name!r}, {self.kind!r})"


class AlertRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the tree of routes. Times in ms."""

    receiver: str
    matchers: tuple[LabelMatcher, ...] = ()
    group_by: tuple[str, ...] = ()
    wait_ms: int = 30 * SECOND
    interval_ms: int = 5 * MINUTE
    repeat_ms: int = DAY // 6
    goes_on: bool = False
    muted: tuple[TimeInterval, ...] = ()
    """Times in which the route sends nothing."""
    active: tuple[TimeInterval, ...] | None = None
    """The only times at which the route sends; None for any time."""
    routes: "tuple[AlertRoute, ...]" = ()

    def is_muted(self, now_ms: int) -> bool:
        """Return True at a time in epoch ms at which the route sends nothing; its alerts are sent afterwards."""
        if any(one.contains(now_ms) for one in self.muted):
            return True
        return self.active is not None and not any(one.contains(now_ms) for one in self.active)


class AlertConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Routes, destinations, inhibitions and allowed addresses. Without a route nothing is sent."""

    route: AlertRoute | None = None
    destinations: tuple[Destination, ...] = ()
    receivers: tuple[str, ...] = ()
    inhibitions: tuple[Inhibition, ...] = (CASCADES,)
    guard: DestinationPolicy = DestinationPolicy(frozenset(), ())
    resolve_ms: int = 5 * MINUTE
    """Time after which an alert of another program ends unless the program repeats it."""


def load_config(path: str) -> AlertConfig:
    """Read the settings; nothing is sent without a file. Raises ConfigurationError with file, line and field."""
    return read_config(load_file(path)) if path else AlertConfig()


def read_config(content: Field) -> AlertConfig:
    """Return the settings of a file. Raises as ``load_config``."""
    known = ("global", "route", "receivers", "inhibit_rules", "time_intervals", _MUTED, "allow")
    fields = content.read_fields(known, {"templates": _TEMPLATED})
    common = fields["global"].read_fields(_GLOBAL) if "global" in fields else {}
    destinations: list[Destination] = []
    names: list[str] = []
    for entry in fields["receivers"].read_items() if "receivers" in fields else ():
        names.append(_receiver(entry, common, destinations))
        if names[-1] in names[:-1]:
            entry.fail(f"the receiver {names[-1]!r} is defined twice")
    if len(destinations) > MOST_DESTINATIONS:
        fields["receivers"].fail(f"there are {len(destinations)} destinations; the limit is {MOST_DESTINATIONS}")
    _check_apprise(fields.get("receivers", content), destinations)
    if "route" not in fields:
        content.fail("a route is needed, with the receiver of every alert")
    # The field of Alertmanager before 0.24 is read too.
    intervals = dict(
        read_intervals(
            [one for name in ("time_intervals", _MUTED) if name in fields for one in fields[name].read_items()]
        )
    )
    return AlertConfig(
        route=_RouteReader(names, intervals).read(fields["route"], AlertRoute(receiver="")),
        destinations=tuple(destinations),
        receivers=tuple(names),
        inhibitions=(
            CASCADES,
            *map(_inhibition, fields["inhibit_rules"].read_items() if "inhibit_rules" in fields else ()),
        ),
        guard=DestinationPolicy.from_settings(
            [one.read_text() for one in fields["allow"].read_items()] if "allow" in fields else ()
        ),
        resolve_ms=read_duration(common["resolve_timeout"]) if "resolve_timeout" in common else 5 * MINUTE,
    )


class _RouteReader:
    """Reads the tree of routes, which name receivers and time intervals."""

    def __init__(self, receivers: Sequence[str], intervals: Mapping[str, tuple[TimeInterval, ...]]) -> None:
        self._receivers = receivers
        self._intervals = intervals
        self._count = 0

    def read(self, entry: Field, parent: AlertRoute) -> AlertRoute:
        """Read a route with its child routes. Raises ConfigurationError."""
        fields = entry.read_fields(_ROUTE)
        self._count += 1
        if self._count > MOST_ROUTES:
            entry.fail(f"there are more than {MOST_ROUTES} routes")
        receiver = fields["receiver"].read_text(200) if "receiver" in fields else parent.receiver
        if receiver not in self._receivers:
            fields.get("receiver", entry).fail(f"the receiver {receiver!r} is not defined")
        matchers = _matchers(fields)
        if not parent.receiver and matchers:
            entry.fail("the first route matches every alert: it has no matchers")
        for name in (_MUTED, _ACTIVE) if not parent.receiver else ():
            if name in fields:
                fields[name].fail("the first route is for every alert at all times: give time intervals to its routes")
        names = fields["group_by"].read_items() if "group_by" in fields else None
        times = {name: read_duration(fields[field]) for name, field in _TIMES.items() if field in fields}
        inherited = AlertRoute(
            receiver=receiver,
            group_by=parent.group_by if names is None else tuple(one.read_text(200) for one in names),
            **({name: getattr(parent, name) for name in _TIMES} | times),
        )
        below = fields["routes"].read_items() if "routes" in fields else ()
        return replace(
            inherited,
            matchers=matchers,
            goes_on=fields["continue"].read_flag() if "continue" in fields else False,
            muted=self._read_interval_names(fields[_MUTED]) if _MUTED in fields else (),
            active=self._read_interval_names(fields[_ACTIVE]) or None if _ACTIVE in fields else None,
            routes=tuple(self.read(one, inherited) for one in below),
        )

    def _read_interval_names(self, entry: Field) -> tuple[TimeInterval, ...]:
        found: list[TimeInterval] = []
        for one in entry.read_items():
            if (name := one.read_text(200)) not in self._intervals:
                one.fail(
                    f"the time interval {name!r} is not defined; defined are {', '.join(self._intervals) or 'none'}"
                )
            found += self._intervals[name]
        return tuple(found)


def _matchers(fields: Mapping[str, Field], prefix: str = "") -> tuple[LabelMatcher, ...]:
    found: list[LabelMatcher] = []
    for name, is_regex in ((f"{prefix}match", False), (f"{prefix}match_re", True)):
        if name in fields:
            found += [
                _check_field_matcher(field, LabelMatcher(label, field.read_text(), is_regex))
                for label, field in fields[name].read_pairs()
            ]
    for field in fields[f"{prefix}matchers"].read_items() if f"{prefix}matchers" in fields else ():
        try:
            found.append(parse_matcher(field.read_text()))
        except InvalidRequestError as error:
            field.fail(error.message)
    return tuple(found)


def _check_field_matcher(field: Field, matcher: LabelMatcher) -> LabelMatcher:
    try:
        return check_matcher(matcher)
    except InvalidRequestError as error:
        field.fail(error.message)


def _inhibition(entry: Field) -> Inhibition:
    sides = [f"{side}_{kind}" for side in ("source", "target") for kind in ("match", "match_re", "matchers")]
    fields = entry.read_fields((*sides, "equal"))
    source, target = _matchers(fields, "source_"), _matchers(fields, "target_")
    if not source or not target:
        entry.fail("an inhibition needs matchers of its source and of its target")
    return Inhibition(
        source, target, tuple(one.read_text(200) for one in fields["equal"].read_items()) if "equal" in fields else ()
    )


def _receiver(entry: Field, common: Mapping[str, Field], destinations: list[Destination]) -> str:
    kinds: Mapping[str, _Reader] = {
        "webhook": _webhook,
        "email": _email,
        "alertmanager": _webhook,
        "apprise": _apprise,
        "owner": _email,
    }
    fields = entry.read_fields(("name", *(f"{kind}_configs" for kind in kinds)))
    if "name" not in fields or not (name := fields["name"].read_text(200)):
        entry.fail("a receiver needs a name")
    for kind, read in kinds.items():
        for number, one in enumerate(fields[f"{kind}_configs"].read_items() if f"{kind}_configs" in fields else ()):
            target, resolved = read(one, common, kind)
            destinations.append(
                Destination(
                    name=f"{name}/{kind}/{number}",
                    receiver=name,
                    kind=kind,
                    target=target,
                    send_resolved=kind == "alertmanager" or (resolved if resolved is not None else kind == "webhook"),
                )
            )
    return name


def _webhook(entry: Field, common: Mapping[str, Field], kind: str) -> tuple[Http, bool | None]:  # noqa: ARG001 - as the other
    refused = dict.fromkeys(("payload", "title", "message"), _TEMPLATED)
    fields = entry.read_fields(_WEBHOOK, refused)
    url = _secret(entry, fields, "url", needed=True)
    if kind == "alertmanager" and not urlsplit(url).path.rstrip("/").endswith("/alerts"):
        url = f"{url.rstrip('/')}/api/v2/alerts"
    try:
        SinkEndpoint(url, DestinationPolicy(frozenset(), ()), query=True)
    except ConfigurationError as error:
        fields.get("url", entry).fail(str(error))
    most = fields["max_alerts"].read_number(0, 10_000) if "max_alerts" in fields else 0
    authorization = _authorization(fields["http_config"]) if "http_config" in fields else ""
    resolved = fields["send_resolved"].read_flag() if "send_resolved" in fields else None
    return Http(url=url, authorization=authorization, most=most), resolved


def _apprise(entry: Field, common: Mapping[str, Field], kind: str) -> tuple[AppriseUrl, bool | None]:  # noqa: ARG001 - as the other
    fields = entry.read_fields(("url", "url_file", "send_resolved"), dict.fromkeys(("title", "message"), _TEMPLATED))
    url = _secret(entry, fields, "url", needed=True)
    if not is_installed():
        entry.fail("the package apprise is not installed: install jobmeter[apprise]")
    return AppriseUrl(url), fields["send_resolved"].read_flag() if "send_resolved" in fields else None


def _check_apprise(entry: Field, destinations: Sequence[Destination]) -> None:
    """Refuse addresses that apprise does not understand."""
    found = {one.name: one.target.url for one in destinations if isinstance(one.target, AppriseUrl)}
    try:
        wrong = find_invalid_urls([*found.values()]) if found else []
    except SinkError as error:
        entry.fail(error.message)
    if wrong:
        names = ", ".join([*found][at] for at in wrong)
        entry.fail(f"apprise does not understand the url of {names}; see https://appriseit.com/services/")


def _authorization(entry: Field) -> str:
    found = entry.read_fields(("authorization",))
    if "authorization" not in found:
        return ""
    fields = found["authorization"].read_fields(("type", "credentials", "credentials_file"))
    kind = fields["type"].read_text(64) if "type" in fields else "Bearer"
    value = f"{kind} {_secret(entry, fields, 'credentials', needed=True)}"
    if not value.isprintable():
        entry.fail("the credentials have characters that a header may not have")
    return value


def _email(entry: Field, common: Mapping[str, Field], kind: str) -> tuple[Email, bool | None]:
    refused = dict.fromkeys(("headers", "html", "text"), _TEMPLATED)
    fields = entry.read_fields(_OWNER if kind == "owner" else _EMAIL, refused)
    every = {name.removeprefix("smtp_"): field for name, field in common.items()} | fields
    for name in ("smarthost", "from", "domain" if kind == "owner" else "to"):
        if name not in every:
            entry.fail(f"{name} is needed, here or as smtp_{name} in global" if name != "to" else "to is needed")
    host, colon, port = every["smarthost"].read_text(300).rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        every["smarthost"].fail("HOST:PORT is needed")
    addresses = {name: fields[name].read_text(1_000) for name in ("to", "domain") if name in fields}
    if not all(text.isprintable() and text for text in (*addresses.values(), every["from"].read_text(300))):
        entry.fail("an address is empty, or has characters that it may not have")
    return (
        Email(
            **addresses,
            sender=every["from"].read_text(300),
            host=host,
            port=int(port),
            tls=every["require_tls"].read_flag() if "require_tls" in every else True,
            user=every["auth_username"].read_text(300) if "auth_username" in every else "",
            password=_secret(entry, every, "auth_password"),
            hello=every["hello"].read_text(300) if "hello" in every else "localhost",
        ),
        fields["send_resolved"].read_flag() if "send_resolved" in fields else None,
    )


def _secret(entry: Field, fields: Mapping[str, Field], name: str, *, needed: bool = False) -> str:
    """Return a text from a field, or from the file that ``NAME_file`` names."""
    if name in fields:
        return fields[name].read_text(4_096)
    if f"{name}_file" in fields:
        field = fields[f"{name}_file"]
        try:
            return Path(field.read_text()).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            field.fail(f"the file cannot be read: {error}")
    if needed:
        entry.fail(f"{name} is needed")
    return ""
