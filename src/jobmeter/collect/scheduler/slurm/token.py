"""The token for slurmrestd, from a file or the environment: https://slurm.schedmd.com/jwt.html."""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jobmeter.errors import UnavailableError
from jobmeter.model.time import iso

_VARIABLE = "SLURM_JWT"
_MOST_BYTES = 65_536


class _Claims(msgspec.Struct):
    """``exp`` is when the token expires, ``sun`` its Slurm user."""

    exp: float | None = None
    sun: str = ""


class Token(msgspec.Struct, frozen=True):
    """A token, and ``source``, where it is from. ``user`` is whom it is sent for."""

    text: str
    user: str
    source: str

    def headers(self) -> dict[str, str]:
        """What a request is sent with."""
        return {"X-SLURM-USER-TOKEN": self.text, "X-SLURM-USER-NAME": self.user}

    def problem(self, now_ms: int) -> str:
        """Why it is invalid at that time; empty where it may be valid."""
        end = _claims(self.text).exp
        if end is None or end * 1000 > now_ms:
            return ""
        return f"the token of {self.source} expired at {iso(round(end * 1000))}; make another one (`scontrol token`)"


def read_token(environment: Mapping[str, str], file: str | None) -> Token | None:
    """The token of ``file``, else of ``SLURM_JWT``; None where there is neither. Raises UnavailableError.

    A file is read at each call, so that a token may be renewed there. It holds the token, or the line that ``scontrol
    token`` prints: ``SLURM_JWT=...``.
    """
    text, source = environment.get(_VARIABLE, ""), _VARIABLE
    if file is not None:
        source = file
        try:
            with Path(file).open("rb") as opened:
                text = opened.read(_MOST_BYTES).decode(errors="replace")
        except OSError as error:
            raise UnavailableError(f"the token of slurmrestd cannot be read: {error}") from error
    text = text.strip().removeprefix(f"{_VARIABLE}=").strip()
    if not text:
        if file is not None:
            raise UnavailableError(f"there is no token of slurmrestd in {file}")
        return None
    if not text.isascii() or not text.isprintable() or " " in text:
        raise UnavailableError(f"the content of {source} is not a token of slurmrestd")
    user = environment.get("SLURM_USER_NAME") or _claims(text).sun or environment.get("USER", "")
    return Token(text, user, source)


def _claims(text: str) -> _Claims:
    """The claims of the token; empty where they cannot be read."""
    part = text.split(".")[1] if text.count(".") == 2 else ""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=_Claims)
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error, ValueError):
        return _Claims()
