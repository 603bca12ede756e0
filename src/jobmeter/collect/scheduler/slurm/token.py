"""Token for slurmrestd, from a file or the environment: https://slurm.schedmd.com/jwt.html."""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jobmeter.errors import UnavailableError
from jobmeter.model.time import format_iso

_VARIABLE = "SLURM_JWT"
_MOST_BYTES = 65_536


class _Claims(msgspec.Struct):
    """Claims: ``exp`` is the expiry of the token, ``sun`` its Slurm user."""

    exp: float | None = None
    sun: str = ""


class Token(msgspec.Struct, frozen=True):
    """Token with its ``source``. ``user`` is sent with it."""

    text: str
    user: str
    source: str

    def make_headers(self) -> dict[str, str]:
        """Return the headers of a request."""
        return {"X-SLURM-USER-TOKEN": self.text, "X-SLURM-USER-NAME": self.user}

    def find_problem(self, now_ms: int) -> str:
        """Return the reason why it is invalid at that time; empty if it may be valid."""
        end = _claims(self.text).exp
        if end is None or end * 1000 > now_ms:
            return ""
        return (
            f"the token of {self.source} expired at {format_iso(round(end * 1000))}; create a new one "
            "(`scontrol token`)"
        )


def read_token(environment: Mapping[str, str], file: str | None) -> Token | None:
    """Return the token of ``file``, else of ``SLURM_JWT``; None without both. Raises UnavailableError.

    The file contains the token, or the line that ``scontrol token`` prints: ``SLURM_JWT=...``.
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
            raise UnavailableError(f"{file} contains no slurmrestd token")
        return None
    if not text.isascii() or not text.isprintable() or " " in text:
        raise UnavailableError(f"the content of {source} is not a slurmrestd token")
    user = environment.get("SLURM_USER_NAME") or _claims(text).sun or environment.get("USER", "")
    return Token(text, user, source)


def _claims(text: str) -> _Claims:
    """Return the claims of the token; empty if they cannot be read."""
    part = text.split(".")[1] if text.count(".") == 2 else ""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=_Claims)
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error, ValueError):
        return _Claims()
