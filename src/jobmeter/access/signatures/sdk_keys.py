"""Keys that Huawei Cloud's SDKs derive from a key pair, and verification of signatures made with them.

A verifier derives the same keys. The private keys of the two elliptic curves come from the secret by a counter-mode key
derivation; the request's signature is verified with the public key.
"""

import hmac
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from jobmeter.access.signatures import sm2

P256_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
KEYS = 1024
"""Cached public keys, so that later requests of a client are verified faster."""


def derive_secret(access_key: str, secret: str, info: str) -> str:
    """Derive the secret of one day, region and service, with which V11-HMAC-SHA256 signs."""
    derivation = HKDF(algorithm=SHA256(), length=32, salt=access_key.encode(), info=info.encode())
    return derivation.derive(secret.encode()).hex()


def derive_private_number(algorithm: str, hashed: str, order: int, access_key: str, secret: str) -> int:
    """Derive the private key, from 1 to ``order`` - 1, for an algorithm with that hash and a curve of that order."""
    for counter in range(255):
        context = access_key.encode() + bytes((counter,))
        data = b"\x00\x00\x00\x01" + algorithm.encode() + b"\x00" + context + b"\x00\x00\x01\x00"
        candidate = int.from_bytes(hmac.new(secret.encode(), data, hashed).digest(), "big")
        if candidate <= order - 2:
            return candidate + 1
    message = f"this key pair yields no private key for {algorithm}"
    raise ValueError(message)


def verify_p256(access_key: str, secret: str, signature: str, text: bytes) -> bool:
    """True if the hexadecimal DER signature was made with the key pair's P-256 key."""
    try:
        _p256_key(access_key, secret).verify(bytes.fromhex(signature), text, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def verify_sm2(access_key: str, secret: str, signature: str, text: bytes) -> bool:
    """True if the hexadecimal DER signature was made with the key pair's SM2 key."""
    try:
        r, s = decode_dss_signature(bytes.fromhex(signature))
    except ValueError:
        return False
    return sm2.verify(_sm2_key(access_key, secret), r, s, text)


@lru_cache(KEYS)
def _p256_key(access_key: str, secret: str) -> ec.EllipticCurvePublicKey:
    number = derive_private_number("SDK-ECDSA-P256-SHA256", "sha256", P256_N, access_key, secret)
    return ec.derive_private_key(number, ec.SECP256R1()).public_key()


@lru_cache(KEYS)
def _sm2_key(access_key: str, secret: str) -> sm2.PublicKey:
    return sm2.compute_public_key(derive_private_number("SDK-SM2-SM3", "sm3", sm2.N, access_key, secret))
