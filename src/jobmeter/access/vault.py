"""Vault: the secret key of an installation. It encrypts signature secrets in the registry and signs share tokens.

The key file lies outside the registry, so that a stolen copy of the registry reveals no secrets.
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
    """Encrypts, decrypts and signs. Each use has its own key, derived from the key file. Thread-safe."""

    def __init__(self, key: bytes) -> None:
        """``key`` is 32 random bytes."""
        if len(key) != KEY_BYTES:
            raise ConfigurationError(f"the secret key must have {KEY_BYTES} bytes, it has {len(key)}")
        self._cipher = AESGCM(_derive_key(key, b"jobmeter sealed secrets v1"))
        self._signing = _derive_key(key, b"jobmeter share tokens v1")
        self._marking = _derive_key(key, b"jobmeter fingerprints v1")

    @classmethod
    def load(cls, settings: Settings, *, make: bool = True) -> "Vault":
        """Load the vault from the key file in the settings; the default file in the data folder is created if missing.

        With ``make`` False it is not created: existing secrets would not open with a new key. Raises ConfigurationError
        for a file that is missing, malformed or readable by others.
        """
        if settings.secret_key_file:
            return cls(_read(Path(settings.secret_key_file)))
        path = settings.data / KEY_FILE
        if make and not path.exists():
            _make(path)
        return cls(_read(path))

    def seal(self, secret: str, owner: str) -> bytes:
        """Encrypt the secret, bound to its owner's name: no other owner can open it."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret.encode(), _VERSION + owner.encode())

    def open(self, sealed: bytes, owner: str) -> str:
        """Decrypt a secret from ``seal``.

        Raises ConfigurationError when it was encrypted with another key or for another owner.
        """
        nonce, body = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, body, sealed[:1] + owner.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise ConfigurationError(
                f"the secret of {owner} was encrypted with another key file: restore that file, or create a new key"
            ) from error

    def sign(self, data: bytes) -> bytes:
        """Return a 16-byte signature of ``data`` that only this vault can make."""
        return hmac.new(self._signing, data, hashlib.sha256).digest()[:16]

    def compute_fingerprint(self, text: str) -> str:
        """Return 8 hexadecimal digits that distinguish texts in a log.

        Nobody without the key can guess texts by them.
        """
        return hmac.new(self._marking, text.encode(), hashlib.sha256).hexdigest()[:8]


def _derive_key(key: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(key)


def _read(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigurationError(f"the secret key file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the secret key file {path} does not have 64 hexadecimal digits") from error
    # A group may read it, because containers get secrets that way. Others may not read it, and no group may write it.
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
        # A link is created or fails as a whole: of two programs that start together one wins, and both read its key.
        with suppress(FileExistsError):
            os.link(part, path)
    except OSError as error:
        raise ConfigurationError(f"the secret key file {path} cannot be created: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink()
