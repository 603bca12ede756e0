"""Who a caller is, once a credential was checked."""

from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """What a key may do at most."""

    ADMIN = "admin"
    WRITER = "writer"
    READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The holder of a key, or of a share token.

    ``project`` None: every project; what it writes belongs to ``default``. ``job`` is set for a share token, which
    opens the measurements of that one job and nothing else. ``access_key_id`` is the key's public half, empty where
    there is no key.
    """

    id: str
    name: str
    role: Role
    project: str | None = None
    job: str | None = None
    access_key_id: str = field(default="", compare=False)
