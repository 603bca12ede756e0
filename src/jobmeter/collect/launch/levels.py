"""The level of a line of output, where the line states it."""

import re
from typing import Any

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.log import level_of

_START = 96
"""How far into a line its level may stand."""
_LONGEST_JSON = 16_384
_KEYS = ("level", "severity", "levelname", "log_level", "lvl")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_WORDS = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|FATAL"
_FORMS = (
    # WARNING: text, 2026-11-20 15:00:00,123 INFO text: behind nothing but a time, in capitals.
    re.compile(rf"(?:[^A-Za-z]|(?<=\d)[TZ])*(?P<word>{_WORDS})\b(?![.\w-])"),
    # name - ERROR - text, name | INFO | text, [rank0] [WARNING] text, root: ERROR: text
    re.compile(rf".*?(?:[\[(<|]\s*|-\s+|:\s+)(?P<word>{_WORDS})(?=\s*[\])>|:]|\s+-\s)"),
    # A compiler's, say: error: text
    re.compile(r"(?P<word>(?i:warning|error|fatal))(?: error)?: "),
    # logfmt: time=... level=warn
    re.compile(r"(?:.*\s)?level=\"?(?P<word>\w+)"),
    # path.py:12: UserWarning: text
    re.compile(r"(?:\S+:\d+: )(?:\w*)(?P<word>Warning): "),
    # The end of a traceback: ValueError: text
    re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?P<word>Error)(?:: |$)"),
)
_ANY = re.compile("trace|debug|info|notice|warn|err|critical|fatal|level=", re.IGNORECASE)
# glog: W1120 15:00:00.123456
_GLOG = re.compile(r"(?P<letter>[IWEF])\d{4} \d\d:\d\d:\d\d")
_LETTERS = {"I": Level.INFO, "W": Level.WARNING, "E": Level.ERROR, "F": Level.ERROR}
_TRACEBACK = "Traceback (most recent call last):"


def guess_level(text: str) -> Level | None:
    """The level that a line states: by a word near its start, or in the level of a JSON object; else None."""
    if text.startswith("{"):
        return _of_json(text)
    start = _COLOUR.sub("", text[: 2 * _START])[:_START]
    if start.startswith(_TRACEBACK):
        return Level.ERROR
    glog = _GLOG.match(start)
    if glog:
        return _LETTERS[glog["letter"]]
    for form in _FORMS if _ANY.search(start) else ():
        found = form.match(start)
        if found:
            return level_of(found["word"])
    return None


def _of_json(text: str) -> Level | None:
    if len(text) > _LONGEST_JSON:
        return None
    try:
        entry: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    words = (entry.get(key) for key in _KEYS) if isinstance(entry, dict) else ()
    return next((level for word in words if isinstance(word, str) and (level := level_of(word))), None)
