"""Values that callers give to the registry to store: observations of samples, and keys."""

import msgspec


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The first and the last time, in epoch ms, at which a batch has samples of one replica, device or node.

    Names that the samples lack are empty. An empty ``job`` means samples of the node.
    """

    project: str
    job: str
    replica: str
    attempt: int
    cluster: str
    node: str
    device: str
    first_ms: int
    last_ms: int


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the registry stores it: the token as a SHA-256 digest, the secret sealed. Times in epoch ms."""

    id: str
    name: str
    role: str
    project: str | None
    token_hash: bytes
    access_key_id: str
    sealed_secret: bytes
    created: int
    revoked: int | None = None
    last_used: int | None = None
    policies: str = ""
    """Policies attached to the key, as JSON; empty for none."""
    job: str = ""
    """The job that a link opens; empty for every other key."""
    expires: int | None = None
    """Time at which the key expires; None for never."""
