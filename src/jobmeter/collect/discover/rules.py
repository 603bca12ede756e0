"""Operator's rules that define jobs without a scheduler: by units, containers, control groups, commands.

A TOML file has one table ``[[job]]`` per rule; the first match decides. Patterns are shell patterns. A template uses
the matches of their ``*`` and ``?`` as ``{1}``, ``{2}`` and so on.

Users choose the command lines and, with a delegated group, the paths that are matched. So the lengths of both, the
number and length of the patterns, and the time of a match (see ``Glob``) are limited.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import Groups
from jobmeter.errors import ConfigurationError
from jobmeter.model.glob import Glob

MOST_RULES, MOST_BYTES, LONGEST_PATTERN = 100, 65_536, 1_024
LONGEST_COMMAND = 4_096
_INVOCATIONS = "/run/systemd/units"
_UNSAFE = re.compile(r"[^A-Za-z0-9._@:+=-]+")
_NAMED = re.compile(r"\{([^{}]*)\}")
_ENDINGS = (".service", ".scope")
_ID = re.compile(r"[0-9a-f]{64}")
_ID_LENGTH = 64
_RUNTIMES = {"docker": "docker", "libpod": "podman"}


class _Kind(NamedTuple):
    """Kind of rule: the default template of a job's id, the type of its jobs, and the fields of its templates.

    The matches of a pattern's wildcards are further fields.
    """

    job: str
    type: str
    fields: frozenset[str] = frozenset()


_RULES = {
    "unit": _Kind("{unit}-{invocation}", "Service", frozenset({"unit", "invocation"})),
    "container": _Kind("{runtime}-{container}", "Container", frozenset({"runtime", "container"})),
    "cgroup": _Kind("", "Cgroup"),
    "command": _Kind("", "Process", frozenset({"pid"})),
}

Fields = Mapping[str, str]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    unit: str = ""
    container: str = ""
    cgroup: str = ""
    command: str = ""
    job: str = ""
    name: str = ""
    type: str = ""
    user: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    job: list[_Entry] = []


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """Job that a rule assigns to a process. ``groups`` are the job's own, empty for a command."""

    job: str
    name: str
    kind: str
    user: str
    groups: Groups


class _Place(NamedTuple):
    """Part of a group's path that a rule may match: its end, its name, and the fields for templates."""

    end: int
    name: str
    fields: Fields


class RuleSubject:
    """Process that rules are matched with. Each part is read once, when the first rule needs it."""

    def __init__(self, proc_root: str, pid: int, groups: Groups, invocations: str = _INVOCATIONS) -> None:
        self._proc = proc_root
        self.pid = pid
        self.groups = groups
        self._invocations = invocations

    @cached_property
    def command(self) -> str:
        """Command line, its words separated by spaces; empty if it is not readable."""
        line = files.read(f"{self._proc}/{self.pid}/cmdline", LONGEST_COMMAND) or b""
        return line.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")

    @cached_property
    def units(self) -> dict[str, list[_Place]]:
        """Units of systemd in each path."""
        return {controller: self._list_units(path) for controller, path in self.groups.items()}

    @cached_property
    def containers(self) -> dict[str, list[_Place]]:
        """Containers in each path."""
        return {controller: _containers(path) for controller, path in self.groups.items()}

    def _list_units(self, path: str) -> list[_Place]:
        found, end = [], -1
        for name in path.split("/"):
            end += len(name) + 1
            if name.endswith(_ENDINGS) and not name.startswith("."):
                found.append(_Place(end, name, _describe_unit(name, self._invocations)))
        return found


@dataclass(frozen=True, slots=True)
class JobRule:
    """Rule: ``by`` is unit, container, cgroup or command. A ``cgroup`` has a pattern for each part of its path."""

    by: str
    patterns: tuple[Glob, ...]
    job: str
    name: str
    kind: str
    user: str

    def match(self, subject: RuleSubject) -> RuleMatch | None:
        """Return the job of a process by this rule; None without a match."""
        if self.by == "command":
            found = self.patterns[0].find_wildcards(subject.command)
            return None if found is None else self._make_match({"pid": str(subject.pid), **_number_groups(found)}, {})
        own: Groups = {}
        fields: Fields | None = None
        for controller, path in subject.groups.items():
            place = self._find_place(subject, controller, path)
            if place is not None:
                own[controller] = path[: place.end]
                fields = fields or place.fields
        return None if fields is None else self._make_match(fields, own)

    def _find_place(self, subject: RuleSubject, controller: str, path: str) -> _Place | None:
        """Find the part of a path that the rule matches."""
        if self.by == "cgroup":
            return self._match_beginning(path)
        places = subject.units if self.by == "unit" else subject.containers
        for place in places[controller]:
            if (found := self.patterns[0].find_wildcards(place.name)) is not None:
                return place._replace(fields={**place.fields, **_number_groups(found)})
        return None

    def _match_beginning(self, path: str) -> _Place | None:
        parts = path.split("/", len(self.patterns))[: len(self.patterns)]
        found = [pattern.find_wildcards(part) for pattern, part in zip(self.patterns, parts, strict=False)]
        if len(parts) < len(self.patterns) or None in found:
            return None
        name = "/".join(parts)
        return _Place(len(name), name, _number_groups([text for some in found for text in some or ()]))

    def _make_match(self, fields: Fields, groups: Groups) -> RuleMatch:
        def filled(template: str) -> str:
            text = _NAMED.sub(lambda match: fields[match[1]], template)
            return _UNSAFE.sub("-", text).strip("-")

        return RuleMatch(filled(self.job), filled(self.name), self.kind, self.user, groups)


def read_rules(path: Path) -> tuple[JobRule, ...]:
    """Read the rules of a file. Raises ConfigurationError that names the rule and the wrong field."""
    try:
        data = path.read_bytes()
        if len(data) > MOST_BYTES:
            raise ConfigurationError(f"{path} is longer than {MOST_BYTES} bytes")
        entries = msgspec.convert(tomllib.loads(data.decode()), _File).job
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if len(entries) > MOST_RULES:
        raise ConfigurationError(f"{path} has {len(entries)} rules, {MOST_RULES} are allowed")
    return tuple(_rule(entry, f"{path}, rule {number}") for number, entry in enumerate(entries, 1))


def find_first_match(rules: Sequence[JobRule], subject: RuleSubject) -> RuleMatch | None:
    """Return the job of a process by the first rule that matches."""
    matches = (rule.match(subject) for rule in rules)
    return next((match for match in matches if match is not None), None)


def _rule(entry: _Entry, where: str) -> JobRule:
    kinds = [kind for kind in _RULES if getattr(entry, kind)]
    if len(kinds) != 1:
        raise ConfigurationError(f"{where}: give one of {', '.join(_RULES)}")
    (by,) = kinds
    text = getattr(entry, by)
    job = entry.job or _RULES[by].job
    if not job:
        raise ConfigurationError(f"{where}: job is missing: give a template of the job's id, such as 'nightly-{{1}}'")
    if len(text) > LONGEST_PATTERN:
        raise ConfigurationError(f"{where}: {by} has {len(text)} characters, {LONGEST_PATTERN} are allowed")
    if by == "cgroup" and not text.startswith("/"):
        raise ConfigurationError(f"{where}: cgroup {text!r} does not begin with /")
    # No wildcard of a path matches a slash: its parts are matched one by one.
    patterns = tuple(Glob(part, classes=True) for part in (_parts(text) if by == "cgroup" else [text]))
    wildcards = sum(pattern.count for pattern in patterns)
    allowed = _RULES[by].fields | {str(number) for number in range(1, wildcards + 1)}
    for field, template in (("job", job), ("name", entry.name)):
        _check_template(template, allowed, f"{where}: {field}")
    default_name = "{unit}" if by == "unit" else ""
    return JobRule(by, patterns, job, entry.name or default_name, entry.type or _RULES[by].type, entry.user)


def _parts(path: str) -> list[str]:
    """Split the pattern of a path at slashes outside of brackets. The first part is empty, before the slash."""
    return ["", *re.findall(r"/((?:\[[^\]]+\]|[^/])*)", path.rstrip("/") or path)]


def _check_template(template: str, allowed: frozenset[str] | set[str], where: str) -> None:
    if set("{}") & set(_NAMED.sub("", template)):
        raise ConfigurationError(f"{where} {template!r} has an unmatched bracket")
    unknown = [name for name in _NAMED.findall(template) if name not in allowed]
    if unknown:
        names = ", ".join(sorted(allowed)) or "nothing: the pattern has no wildcard"
        raise ConfigurationError(f"{where} {template!r} names {{{unknown[0]}}}; there is {names}")


def _number_groups(values: Sequence[str]) -> dict[str, str]:
    return {str(number): value for number, value in enumerate(values, 1)}


def _describe_unit(unit: str, invocations: str) -> dict[str, str]:
    """Return the unit without its suffix, and its run, for which the manager has a link."""
    try:
        run = os.readlink(f"{invocations}/invocation:{unit}")[:8]  # noqa: PTH115 - the target is no path
    except OSError:
        run = ""
    return {"unit": unit.rpartition(".")[0], "invocation": run}


def _containers(path: str) -> list[_Place]:
    """Find the containers in a path: ``docker-ID.scope``, or ``ID`` anywhere below a group ``docker``."""
    found: list[_Place] = []
    end, above = -1, ""
    for part in path.split("/"):
        end += len(part) + 1
        name = part.removesuffix(".scope")
        before, own = name[:-_ID_LENGTH], name[-_ID_LENGTH:]
        kind = above if not before else _runtime(before.removesuffix("-")) if before.endswith("-") else ""
        if kind and _ID.fullmatch(own):
            runtime, above = _RUNTIMES[kind], ""
            found.append(_Place(end, runtime, {"runtime": runtime, "container": own[:12]}))
        else:
            above = above or _runtime(part)
    return found


def _runtime(name: str) -> str:
    return next((kind for kind in _RUNTIMES if name.endswith(kind)), "")
