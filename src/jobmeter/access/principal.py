"""Who a caller is, once a credential was checked."""

from dataclasses import dataclass, field
from enum import StrEnum

from jobmeter.access.policy import Policies
from jobmeter.model.series import DEFAULT_PROJECT


class Role(StrEnum):
    """What a key may do at most."""

    ADMIN = "admin"
    WRITER = "writer"
    READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The holder of a key, or of a share token.

    ``project`` None: every project; what it writes belongs to ``default``. ``job`` is set for a share token, which
    opens the measurements of that one job and nothing else, and for a link, which opens its page.
    ``access_key_id`` is the key's public half, empty where there is no key. ``actions`` None: whatever the role
    allows; else these alone, as the holder of a trace token may.
    """

    id: str
    name: str
    role: Role
    project: str | None = None
    job: str | None = None
    actions: frozenset[str] | None = None
    access_key_id: str = field(default="", compare=False)
    policies: Policies | None = field(default=None, compare=False, repr=False)
    """What policies allow the key, within what its role does; None: its role alone decides."""

    @property
    def linked(self) -> bool:
        """True for the holder of a link: a key that opens the page of one job."""
        return self.job is not None and bool(self.access_key_id)

    @property
    def account(self) -> str:
        """Whose calls its calls are: its project's, else that of the default project."""
        return self.project or DEFAULT_PROJECT
