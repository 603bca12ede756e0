"""Redacts credentials in a command line: everybody who may read a job sees its command."""

import re
from collections.abc import Iterator, Sequence

MASK = "***"
_WORDS = frozenset(
    {"key", "apikey", "token", "secret", "password", "passwd", "passphrase", "credential", "credentials"}
)
"""Last words of names of options and variables whose value is a credential."""
_PARTS = re.compile(r"[-_.]+")
_NAMED = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)=(?P<value>.+)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_USER = re.compile(r"(?<=://)(?P<user>[^/@:\s]*):[^/@\s]+(?=@)")
_TOKEN = re.compile(r"\bjms?_[A-Za-z0-9_-]{16,}")


def redacted(words: Sequence[str]) -> list[str]:
    """The words, ``***`` in place of each credential.

    That is the value of ``--api-key VALUE``, ``--token=VALUE`` or ``DB_PASSWORD=VALUE``, by the last word of the name,
    the password of an address (``://user:password@``), and any token of Jobmeter's own.
    """
    return list(_redacted(words))


def _redacted(words: Sequence[str]) -> Iterator[str]:
    follows = False
    for word in words:
        if follows and not _OPTION.fullmatch(word):
            yield MASK
            follows = False
            continue
        named = _NAMED.fullmatch(word)
        if named is not None and _is_secret(named["name"]):
            yield f"{named['name']}={MASK}"
        else:
            yield _TOKEN.sub(MASK, _USER.sub(rf"\g<user>:{MASK}", word))
        follows = bool(_OPTION.fullmatch(word)) and _is_secret(word)


def _is_secret(name: str) -> bool:
    return _PARTS.split(name.lower())[-1] in _WORDS
