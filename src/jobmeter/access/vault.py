"""The one secret of an installation: it seals the signature secrets in the registry and signs share tokens.

The key file lies outside of the registry, so that a stolen copy of the registry opens nothing.
"""

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from jobmeter.errors import ConfigurationError
from jobmeter.settings import Settings

KEY_BYTES = 32
KEY_FILE = "secret.key"
_VERSION = b"\x01"
_NONCE_BYTES = 12


class Vault:
    """Seals, opens and signs. Each use has a key of its own, derived from the file's. Safe to use from any thread."""

    def __init__(self, key: bytes) -> None:
        """``key`` is 32 random bytes."""
        if len(key) != KEY_BYTES:
            raise ConfigurationError(f"the secret key must have {KEY_BYTES} bytes, it has {len(key)}")
        self._cipher = AESGCM(_derived(key, b"jobmeter sealed secrets v1"))
        self._signing = _derived(key, b"jobmeter share tokens v1")
        self._marking = _derived(key, b"jobmeter fingerprints v1")

    @classmethod
    def load(cls, settings: Settings, *, make: bool = True) -> "Vault":
        """The vault of the key file that the settings name; the one in the data folder is made when it is missing.

        Not unless ``make``: what it sealed would not open with another one. Raises ConfigurationError for a file that
        is missing, malformed or open to others.
        """
        if settings.secret_key_file:
            return cls(_read(Path(settings.secret_key_file)))
        path = settings.data / KEY_FILE
        if make and not path.exists():
            _make(path)
        return cls(_read(path))

    def seal(self, secret: str, owner: str) -> bytes:
        """The secret, encrypted and bound to its owner's name: it opens for no other."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret.encode(), _VERSION + owner.encode())

    def open(self, sealed: bytes, owner: str) -> str:
        """What ``seal`` was given.

        Raises ConfigurationError when it was sealed with another key or for another owner.
        """
        nonce, body = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, body, sealed[:1] + owner.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise ConfigurationError(
                f"the secret of {owner} was sealed with another key file: bring that file back, or make a new key"
            ) from error

    def sign(self, data: bytes) -> bytes:
        """16 bytes that only this vault can make for ``data``."""
        return hmac.new(self._signing, data, hashlib.sha256).digest()[:16]

    def fingerprint(self, text: str) -> str:
        """8 hexadecimal digits that distinguish texts in a log. Nobody without the key can try texts against them."""
        return hmac.new(self._marking, text.encode(), hashlib.sha256).hexdigest()[:8]


def _derived(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(key)


def _read(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigurationError(f"the secret key file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the secret key file {path} does not have 64 hexadecimal digits") from error
    # A group may read it: that is how a secret is handed to a container. Nobody else may, and no group may write.
    if mode & (stat.S_IWGRP | stat.S_IRWXO):
        raise ConfigurationError(f"the secret key file {path} is open to other users: chmod 600 {path}")
    try:
        key = bytes.fromhex(text)
    except ValueError as error:
        raise ConfigurationError(f"the secret key file {path} does not have 64 hexadecimal digits") from error
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"the secret key file {path} does not have 64 hexadecimal digits")
    return key


def _make(path: Path) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{secrets.token_hex(KEY_BYTES)}\n")
            file.flush()
            os.fsync(file.fileno())
        # A link is made or fails as a whole: of two programs that start together one wins, and both read its key.
        with suppress(FileExistsError):
            os.link(part, path)
    except OSError as error:
        raise ConfigurationError(f"the secret key file {path} cannot be made: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink()
