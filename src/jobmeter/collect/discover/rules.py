"""An operator's rules that define jobs without a scheduler: units, containers, control groups, commands.

A file of TOML with one table ``[[job]]`` a rule; the first that matches a process decides. Patterns are those of a
shell; each ``*`` and ``?`` can be named in a template as ``{1}``, ``{2}``, ... .
"""

import fnmatch
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import Groups
from jobmeter.errors import ConfigurationError

MOST_RULES, MOST_BYTES = 100, 65_536
_LONGEST_COMMAND = 4_096
_INVOCATIONS = "/run/systemd/units"
_UNSAFE = re.compile(r"[^A-Za-z0-9._@:+=-]+")
_NAMED = re.compile(r"\{([^{}]*)\}")
_UNIT = re.compile(r"(?<=/)(?P<unit>[^/]+\.(?:service|scope))(?=/|$)")
_CONTAINER = re.compile(r"(?P<kind>docker|libpod)(?:-|/(?:[^/]+/)*?)(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)")
_KINDS = {"docker": "docker", "libpod": "podman"}


class _Kind(NamedTuple):
    """A kind of rule: the default template of a job's id, the type of its jobs, and the fields of its templates.

    The matches of a pattern's wildcards are fields besides.
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
class Match:
    """The job that a rule makes of a process. ``groups`` are those of the job alone, empty for a command's."""

    job: str
    name: str
    kind: str
    user: str
    groups: Groups


@dataclass(frozen=True, slots=True)
class JobRule:
    """One rule: ``by`` is unit, container, cgroup or command."""

    by: str
    pattern: re.Pattern[str]
    job: str
    name: str
    kind: str
    user: str

    def match(self, proc_root: str, pid: int, groups: Groups, invocations: str = _INVOCATIONS) -> Match | None:
        """The job of a process by this rule, None where it does not match."""
        if self.by == "command":
            fields = self._command(proc_root, pid)
            return None if fields is None else self._made(fields, {})
        own: Groups = {}
        found: Fields | None = None
        for controller, path in groups.items():
            part = self._part(path, invocations)
            if part is not None:
                own[controller], fields = part
                found = found or fields
        return None if found is None else self._made(found, own)

    def _part(self, path: str, invocations: str) -> tuple[str, Fields] | None:
        """The part of a path that the rule is about, and the fields for its templates."""
        if self.by == "cgroup":
            match = self.pattern.match(path)
            return None if match is None else (match["whole"], _numbered(match.groups()[1:]))
        places = _UNIT if self.by == "unit" else _CONTAINER
        for place in places.finditer(path):
            subject = place["unit"] if self.by == "unit" else _KINDS[place["kind"]]
            match = self.pattern.fullmatch(subject)
            if match:
                own = _of_unit(subject, invocations) if self.by == "unit" else _of_container(place)
                return path[: place.end()], {**own, **_numbered(match.groups()[1:])}
        return None

    def _command(self, proc_root: str, pid: int) -> Fields | None:
        line = (files.read(f"{proc_root}/{pid}/cmdline") or b"")[:_LONGEST_COMMAND]
        match = self.pattern.fullmatch(line.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace"))
        return match and {"pid": str(pid), **_numbered(match.groups()[1:])}

    def _made(self, fields: Fields, groups: Groups) -> Match:
        def filled(template: str) -> str:
            text = _NAMED.sub(lambda match: fields[match[1]], template)
            return _UNSAFE.sub("-", text).strip("-")

        return Match(filled(self.job), filled(self.name), self.kind, self.user, groups)


def read_rules(path: Path) -> tuple[JobRule, ...]:
    """The rules of a file. Raises ConfigurationError that names the rule and the field that is wrong."""
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


def first_match(rules: Sequence[JobRule], proc_root: str, pid: int, groups: Groups) -> Match | None:
    """The job of a process by the first rule that matches."""
    matches = (rule.match(proc_root, pid, groups) for rule in rules)
    return next((match for match in matches if match is not None), None)


def _rule(entry: _Entry, where: str) -> JobRule:
    kinds = [kind for kind in _RULES if getattr(entry, kind)]
    if len(kinds) != 1:
        raise ConfigurationError(f"{where}: give one of {', '.join(_RULES)}")
    (by,) = kinds
    text = getattr(entry, by)
    job = entry.job or _RULES[by].job
    if not job:
        raise ConfigurationError(f"{where}: job is missing: a template of the job's id, such as 'nightly-{{1}}'")
    if by == "cgroup" and not text.startswith("/"):
        raise ConfigurationError(f"{where}: cgroup {text!r} does not begin with /")
    pattern = _pattern(text, part=by == "cgroup")
    allowed = _RULES[by].fields | {str(number) for number in range(1, pattern.groups)}
    for field, template in (("job", job), ("name", entry.name)):
        _check_template(template, allowed, f"{where}: {field}")
    default_name = "{unit}" if by == "unit" else ""
    return JobRule(by, pattern, job, entry.name or default_name, entry.type or _RULES[by].type, entry.user)


def _pattern(text: str, *, part: bool) -> re.Pattern[str]:
    """A shell's pattern whose wildcards are groups. ``part``: the beginning of a path, no wildcard matches a slash."""
    within = "[^/]" if part else "."
    pieces = re.split(r"(\*|\?|\[[^\]]+\])", text)
    wild = {"*": f"({within}*)", "?": f"({within})"}
    made = "".join(
        wild.get(piece) or (f"({_class(piece)})" if piece.startswith("[") and piece.endswith("]") else re.escape(piece))
        for piece in pieces
    )
    return re.compile(f"(?P<whole>{made})" + ("(?=/|$)" if part else ""), re.DOTALL)


def _class(piece: str) -> str:
    """A set of characters as a regular expression, such as ``[!a-c]``."""
    return fnmatch.translate(piece).removeprefix("(?s:").removesuffix(r")\Z")


def _check_template(template: str, allowed: frozenset[str] | set[str], where: str) -> None:
    if set("{}") & set(_NAMED.sub("", template)):
        raise ConfigurationError(f"{where} {template!r} has a bracket without its other")
    unknown = [name for name in _NAMED.findall(template) if name not in allowed]
    if unknown:
        names = ", ".join(sorted(allowed)) or "nothing: the pattern has no wildcard"
        raise ConfigurationError(f"{where} {template!r} names {{{unknown[0]}}}; there is {names}")


def _numbered(values: Sequence[str]) -> dict[str, str]:
    return {str(number): value for number, value in enumerate(values, 1)}


def _of_unit(unit: str, invocations: str) -> dict[str, str]:
    """The unit without its ending, and which run of it this is: the manager has a link for each unit that runs."""
    try:
        run = os.readlink(f"{invocations}/invocation:{unit}")[:8]  # noqa: PTH115 - the target is no path
    except OSError:
        run = ""
    return {"unit": unit.rpartition(".")[0], "invocation": run}


def _of_container(place: re.Match[str]) -> dict[str, str]:
    return {"runtime": _KINDS[place["kind"]], "container": place["id"][:12]}
