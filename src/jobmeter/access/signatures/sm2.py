"""Signatures on the curve SM2 (GB/T 32918), which ``cryptography`` does not offer.

Only verification. It handles public values, so its time may depend on them. The one secret number, from which a public
key is made, goes through a ladder whose steps are equal for all numbers of its length.
"""

import hashlib

import msgspec

P = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFF
A = P - 3
B = 0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93
N = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123
_X = 0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7
_Y = 0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0
_BITS = N.bit_length()
_DEFAULT_ID = b"1234567812345678"

_Jacobian = tuple[int, int, int]
_INFINITY: _Jacobian = (1, 1, 0)


class PublicKey(msgspec.Struct, frozen=True):
    """Public key: a point of the curve."""

    x: int
    y: int


def compute_public_key(private: int) -> PublicKey:
    """Compute the public key of a private one, from 1 to ``N`` - 2."""
    # A multiple of N changes nothing, and gives every number the same length.
    padded = private + N if (private + N).bit_length() > _BITS else private + 2 * N
    low, high = (_X, _Y, 1), _double((_X, _Y, 1))
    for bit in f"{padded:b}"[1:]:
        both = _add(low, high)
        low, high = (both, _double(high)) if bit == "1" else (_double(low), both)
    return _to_affine(low)


def verify(key: PublicKey, r: int, s: int, message: bytes) -> bool:
    """True if (r, s) is the key holder's signature of the message."""
    t = (r + s) % N
    if not (0 < r < N and 0 < s < N and t):
        return False
    point = _sum(s, t, key)
    if not point[2]:
        return False
    x = _to_affine(point).x
    hashes = (hashlib.new("sm3", preamble + message).digest() for preamble in _preambles(key))
    return any((int.from_bytes(hashed, "big") + x) % N == r for hashed in hashes)


def _preambles(key: PublicKey) -> set[bytes]:
    """Hash preambles: by the standard, and as in Huawei's Python SDK, which drops leading zero bytes of numbers."""
    numbers = (A, B, _X, _Y, key.x, key.y)
    begin = (8 * len(_DEFAULT_ID)).to_bytes(2, "big") + _DEFAULT_ID
    whole = b"".join(number.to_bytes(32, "big") for number in numbers)
    short = b"".join(number.to_bytes((number.bit_length() + 7) // 8, "big") for number in numbers)
    return {hashlib.new("sm3", begin + coordinates).digest() for coordinates in (whole, short)}


def _sum(of_generator: int, of_key: int, key: PublicKey) -> _Jacobian:
    """Add ``of_generator`` times the generator and ``of_key`` times the key, in one walk over the bits of both."""
    generator, point = (_X, _Y, 1), (key.x, key.y, 1)
    steps = {("0", "1"): point, ("1", "0"): generator, ("1", "1"): _add(generator, point)}
    result = _INFINITY
    for bits in zip(f"{of_generator:0{_BITS}b}", f"{of_key:0{_BITS}b}", strict=True):
        result = _double(result)
        if bits in steps:
            result = _add(result, steps[bits])
    return result


def _double(point: _Jacobian) -> _Jacobian:
    x, y, z = point
    if not z or not y:
        return _INFINITY
    square_y, square_z = y * y % P, z * z % P
    s = 4 * x * square_y % P
    m = 3 * (x - square_z) * (x + square_z) % P  # the curve's a is -3
    new_x = (m * m - 2 * s) % P
    return new_x, (m * (s - new_x) - 8 * square_y * square_y) % P, 2 * y * z % P


def _add(one: _Jacobian, other: _Jacobian) -> _Jacobian:
    if not one[2]:
        return other
    if not other[2]:
        return one
    x1, y1, z1 = one
    x2, y2, z2 = other
    square_1, square_2 = z1 * z1 % P, z2 * z2 % P
    u1, u2 = x1 * square_2 % P, x2 * square_1 % P
    s1, s2 = y1 * square_2 * z2 % P, y2 * square_1 * z1 % P
    if u1 == u2:
        return _double(one) if s1 == s2 else _INFINITY
    h, r = u2 - u1, s2 - s1
    square_h = h * h % P
    cube_h, v = square_h * h % P, u1 * square_h % P
    x = (r * r - cube_h - 2 * v) % P
    return x, (r * (v - x) - s1 * cube_h) % P, h * z1 * z2 % P


def _to_affine(point: _Jacobian) -> PublicKey:
    x, y, z = point
    inverse = pow(z, -1, P)
    square = inverse * inverse % P
    return PublicKey(x * square % P, y * square * inverse % P)
