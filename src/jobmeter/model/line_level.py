"""Level that a line of output states: determined by its form, never by its topic.

A line begins with a header: times, names in brackets, hosts, programs. The level is a part of the header, or the first
word after it. Prose that contains the word "error" states no level, and neither does a count ("error: 0").
"""

import re
from typing import Any

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.syslog import WORDS, convert_severity, parse_priority

_START = 192
"""Characters at the start of a line that can contain its header and level."""
_PARTS = 24
"""Most parts of a header."""
_LONGEST_JSON = 16_384
_KEYS = frozenset({"level", "lvl", "severity", "levelname", "loglevel", "log_level", "log.level", "severitytext"})
_SHORT = {"wrn": 4, "inf": 6, "dbg": 7, "ftl": 2, "trc": 7, "pnc": 0, "eror": 3, "erro": 3, "dbug": 7, "debu": 7}
_SHORT |= {"trce": 7, "trac": 7, "fata": 2, "pani": 0, "severe": 3, "exception": 3}
_LEVELS = {word: convert_severity(severity) for word, severity in {**WORDS, **_SHORT}.items()}
_LETTERS = {"D": Level.DEBUG, "I": Level.INFO, "W": Level.WARNING, "E": Level.ERROR, "F": Level.ERROR}

_HINTS = (
    *("err", "warn", "inf", "eror", "fata", "crit", "deb", "dbg", "dbug", "noti", "trac", "except", "wrn", "ftl"),
    *("emerg", "alert", "pan", "severe", "trc", "pnc"),
)
"""Every line that states a level in words contains one of these."""
_LETTER_HINT = re.compile(r"[DIWEF](?:\d{4} \d\d:| )")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_CAPITALS = "|".join(sorted(map(str.upper, {*WORDS, "wrn", "inf", "dbg", "ftl", "trc", "pnc", "severe"}), reverse=True))
_WORDS = "|".join(sorted(WORDS, reverse=True))
_STATED = (
    # ERROR text, ERROR: text, DEBUG1: text, INFO/MainProcess]; in capitals.
    re.compile(rf"(?P<word>{_CAPITALS})\d?(?=[\s:|\])>}},;!]|/\w+\]|$)"),
    # [error], [ERROR ], [core:error], [ssl:trace3], in any letter case; [INFO|file.py:1], (WARN), <ERROR>
    re.compile(rf"\[\s*(?:\w+:)?(?P<word>(?i:{_WORDS}))\d?\s*\]"),
    re.compile(rf"[\[(<{{]\s*(?P<word>{_CAPITALS})(?=[\s|/\])>}}:])"),
    # error: text, fatal error: text, error[E0308]: text, debug2: text; Warning: text
    re.compile(rf"(?P<word>(?i:{_WORDS}))\d?(?: error)?(?:\[\w+\])?(?=:(?:\s|$))"),
    # ERRO[0001] text (logrus), EROR[11-20|15:00:00] text
    re.compile(r"(?P<word>ERRO|EROR|WARN|INFO|DEBU|DBUG|FATA|CRIT|PANI|TRAC|TRCE)\[\d[\d|:T.-]*\]"),
    # ValueError: text, java.io.IOException: text, the end of a traceback; no measure (MeanSquaredError: 0.25)
    re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?P<word>Error|Exception)(?:: (?!-?\d*\.\d+\b)|$)"),
    # path.py:12: UserWarning: text
    re.compile(r"\S+:\d+: \w*(?P<word>Warning): "),
)
_LETTER = re.compile(
    # glog, klog, c10d: E1124 15:00:00.123456, [E1124 15:00:00; absl: E0000 00:00:1700000000.1
    r"\[?(?P<letter>[DIWEF])(?:\d{4} \d\d:\d\d:"
    # [E socket.cpp:426], E external/xla/file.cc:123]; Ray: E 1234 1234]
    r"| [\w./-]+:\d+\]| \d+ \d+\])"
    # NeMo: [NeMo W 2024-05-01 12:00:00
    r"|\[NeMo (?P<nemo>[DIWEF]) "
)
_TRACEBACK = "Traceback (most recent call last):"
_NAME = r"[\w./@+-]"
_PART = re.compile(
    # Parts without letters: digits of times, blanks, punctuation. Letters of times: T, Z, AM, PM, UTC, days, months.
    r"[^A-Za-z\[(<{]+"
    r"|(?<=\d)T(?=\d)|(?:(?<=\d)Z|[AaPp][Mm]|UTC|GMT|[A-Z]{2,3}T)\b"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b"
    # The runtime of Kubernetes: stderr F
    r"|std(?:out|err) [FP]\b"
    # A bracket that opens before a time; [rank3], (pid=12), <module>, {tag}
    r"|[\[(<{](?=[\s\d])|\[[^\[\]]{0,80}\]|\([^()]{0,80}\)|<[^<>]{0,80}>|\{[^{}\"]{0,80}\}"
    # app[77]:, srun:, file.c:1:2:, and a name before a dash or a bar
    rf"|{_NAME}+[\[(]\d+[\])]:?|{_NAME}+(?::[\w.-]+)*:(?=[\s\[])|{_NAME}+(?=\s+[-|]\s)"
)
_AFTER_TIME = re.compile(
    # A host before a program; one or two names (of a logger, a thread) before a level in capitals
    rf"(?P<host>{_NAME}+)\s+(?={_NAME}+(?:\[\d+\])?:\s)"
    r"|(?:(?!(?:the|an?|no|any|this|of|with|without|in|on|at|for|to|and|or|is|was|got)\b)[\w./@:-]+\s+){1,2}"
    rf"(?P<word>{_CAPITALS})(?=[\s:|\]]|$)"
)
_TIME = re.compile(r"\d\d:\d\d")
_ANYWHERE = re.compile(
    # text - ERROR - text, text (ERROR) text, text | INFO | text, text: ERROR: text
    rf"[\[(<|:-]\s*(?<![:-])(?P<word>{_CAPITALS})(?=\s*[\])>|:]|\s+-\s)"
    # host:12:34 [0] NCCL WARN text
    r"|\bNCCL (?P<nccl>WARN|INFO|ERROR|TRACE)\b"
)
_PAIR = re.compile(r"(?:^|(?<=[\s,{]))(?P<key>[\w.@]+)=(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)\"|(?P<bare>[^\s,}]*))")
_COUNT = re.compile(
    # A count or measure after a word: "error: 0", "error: 0.25 step 3", "ERROR: 5, WARNING: 7"
    r"[:=]\s*[-+]?(?:(?:\d*\.\d+(?:[eE][-+]?\d+)?|0+)%?(?![\w.:-])|\d+%?\s*(?:$|[,;|/)]))"
)


def find_level(text: str) -> Level | None:
    """Return the level that a line states; None if it states none."""
    if text.startswith("{"):
        return _read_json_level(text)
    start = text[:_START]
    if "\x1b" in start:
        start = _COLOUR.sub("", text[: 2 * _START])[:_START]
    priority = parse_priority(start)
    if priority is not None:
        return convert_severity(priority[1])
    if '{"' in start:
        place = _find_header_end(start)
        return _read_json_level(text[text.index("{", place) :]) if start.startswith("{", place) else None
    lower = start.lower()
    if not any(hint in lower for hint in _HINTS) and not _LETTER_HINT.search(start):
        return None
    return _read_header_level(start) or _read_logfmt_level(start) or _find_level_anywhere(start)


def _read_header_level(start: str) -> Level | None:
    """Return the level in the header of a line, or after it; None without one."""
    at = 0
    for _ in range(_PARTS):
        level = _read_level_at(start, at)
        if level is not None:
            return level
        part = _PART.match(start, at)
        if part is None and _TIME.search(start, 0, at):
            part = _AFTER_TIME.match(start, at)
            if part is not None and part["word"]:
                return _LEVELS[part["word"].lower()]
        if part is None:
            return None
        at = part.end()
    return None


def _read_level_at(start: str, at: int) -> Level | None:
    if start.startswith(_TRACEBACK, at):
        return Level.ERROR
    letter = _LETTER.match(start, at)
    if letter is not None:
        return _LETTERS[letter["letter"] or letter["nemo"]]
    for form in _STATED:
        found = form.match(start, at)
        if found is not None and not _COUNT.match(start, found.end()):
            return _LEVELS[found["word"].lower()]
    return None


def _find_header_end(start: str) -> int:
    """Return the position at which the header of a line ends."""
    at = 0
    while (part := _PART.match(start, at)) is not None:
        at = part.end()
    return at


def _read_logfmt_level(start: str) -> Level | None:
    """Return the level in the pairs of a line of logfmt: time=... level=warn."""
    for pair in _PAIR.finditer(start) if "=" in start else ():
        if pair["key"].lower() in _KEYS:
            level = _LEVELS.get((pair["quoted"] or pair["bare"] or "").lower())
            if level is not None:
                return level
    return None


def _find_level_anywhere(start: str) -> Level | None:
    for found in _ANYWHERE.finditer(start):
        if not _COUNT.match(start, found.end()):
            return _LEVELS[(found["word"] or found["nccl"]).lower()]
    return None


def _read_json_level(text: str) -> Level | None:
    """Return the level of a JSON object: from a level field, from ``log.level``, or from the line in its ``log``."""
    if len(text) > _LONGEST_JSON:
        return None
    try:
        entry: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    for key, value in entry.items():
        if key.lower() in _KEYS and isinstance(value, str) and (level := _LEVELS.get(value.strip().lower())):
            return level
    inner = entry.get("log")
    if isinstance(inner, dict):
        word = inner.get("level")
        return _LEVELS.get(word.strip().lower()) if isinstance(word, str) else None
    return find_level(inner) if isinstance(inner, str) and not inner.startswith('{"log"') else None
