"""Share tokens: their holder may read one job's measurements until they expire.

A token carries its content with the vault's signature, so that it needs no storage.
"""

import struct

from jobmeter.access.principal import Principal, Role
from jobmeter.access.sealed import decode, sign, verify_content
from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError, UnauthenticatedError
from jobmeter.model.series import check_job_id, check_project
from jobmeter.model.time import SECOND

PREFIX = "jms_"
MAX_LIFE_SECONDS = 365 * 86_400
DEFAULT_LIFE_SECONDS = 7 * 86_400
_HEAD = struct.Struct(">BQB")
_VERSION = 1
_SEAL_BYTES = 16


def issue(
    vault: Vault, project: str, job: str, now_ms: int, life_seconds: int = DEFAULT_LIFE_SECONDS
) -> tuple[str, int]:
    """Create a token for a job.

    Returns the token and its expiry (epoch ms). Raises InvalidRequestError naming the field.
    """
    check_project(project)
    check_job_id(job)
    if not 1 <= life_seconds <= MAX_LIFE_SECONDS:
        raise InvalidRequestError(f"expires_in must be from 1 to {MAX_LIFE_SECONDS} seconds", "expires_in")
    expires_ms = now_ms + life_seconds * SECOND
    name = project.encode()
    content = _HEAD.pack(_VERSION, expires_ms, len(name)) + name + job.encode()
    return PREFIX + sign(vault, content), expires_ms


def read(vault: Vault, token: str, now_ms: int) -> Principal:
    """Return the principal of a token: a reader of one job.

    Raises UnauthenticatedError: ``malformed``, ``bad-signature`` or ``expired``.
    """
    content = _verify_seal(vault, token)
    version, expires_ms, length = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise UnauthenticatedError("the share token has an unknown version", "malformed")
    if expires_ms <= now_ms:
        raise UnauthenticatedError("the share token has expired", "expired")
    names = content[_HEAD.size :]
    project, job = names[:length].decode(), names[length:].decode()
    return Principal(id=f"share:{project}/{job}", name="share", role=Role.READER, project=project, job=job)


def _verify_seal(vault: Vault, token: str) -> bytes:
    data = decode(token.removeprefix(PREFIX)) if token.startswith(PREFIX) else None
    if data is None or len(data) <= _HEAD.size + _SEAL_BYTES:
        raise UnauthenticatedError("the share token is malformed", "malformed")
    content = verify_content(vault, token.removeprefix(PREFIX))
    if content is None:
        raise UnauthenticatedError("the share token was not issued here, or was changed", "bad-signature")
    return content
