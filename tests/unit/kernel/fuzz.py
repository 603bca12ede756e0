"""Passes damaged bodies to every library function that reads foreign data: ``python fuzz.py ROUNDS``.

The bodies derive from a corpus of valid bodies with constant random numbers. The target is a library that stops at the
first bad address. The program prints the number of bodies.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator

import numpy as np
from tests.support.otlp import DELTA, add, metric, request
from tests.support.prometheus import request_1, request_2

from jobmeter.kernel import json as json_kernel
from jobmeter.kernel.otlp import scan
from jobmeter.kernel.remote_write import scan_1, scan_2
from jobmeter.kernel.samples import copy_columns
from jobmeter.kernel.text_table import Texts, TextTable
from jobmeter.wire.json_shape import DEPTHS

NS = 1_767_225_600_000_000_000
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF)


def corpus() -> Iterator[bytes]:
    """Yield valid bodies of every kind and of several sizes."""
    series = [([("__name__", f"m{at}"), ("job", "a" * at)], [(at / 3, 1_000 * at)] * at) for at in range(1, 20)]
    yield from (request_1(series), request_2(series), request_1(series[:1]), request_2(series[:1]), b"")
    for kind in ("gauge", "sum"):
        made = metric("m", kind, "By")
        for at in range(12):
            add(made, NS + at, at if at % 2 else at / 7, node="n" * at, gpu=at)
        yield request({"service.name": "s", "n": 1, "list": [1, "a"]}, made, scope="x").SerializeToString()
    yield request({}, metric("d", "sum", temporality=DELTA)).SerializeToString()
    nested = {"a": [1, {"b": ['\\"{[', None, True]}, [[[[[[]]]]]]], "c": "é" * 40}
    yield json.dumps(nested).encode()
    yield json.dumps([nested] * 20, ensure_ascii=False).encode()


def damaged(body: bytes, chance: random.Random) -> bytes:
    """Return the body with changed, repeated, removed or truncated bytes."""
    made = bytearray(body)
    for _ in range(chance.randint(0, 6)):
        at = chance.randint(0, len(made))
        match chance.randrange(4):
            case 0:
                made[at : at + 1] = bytes([chance.choice(_NUMBERS)])
            case 1:
                made[at : at + chance.randint(0, 8)] = chance.randbytes(chance.randint(0, 8))
            case 2:
                made[at:at] = made[at : at + chance.randint(0, 40)]
            case _:
                del made[at : at + chance.randint(0, 12)]
    return bytes(made[: chance.randint(0, len(made))] if chance.random() < 0.3 else made)


def _texts(data: bytes) -> None:
    """Add the parts of a body to a text table, and find them again."""
    ends = np.arange(1, len(data) + 1, dtype=np.int64)
    texts = Texts(data, np.maximum(ends - 5, 0), ends)
    table = TextTable()
    assert (table.add(texts) == table.find(texts)).all()


def _columns(data: bytes) -> None:
    """Copy as many series and samples as the first bytes say, if the body is long enough."""
    series, rows = data[:1] or b"\0", data[1:2] or b"\0"
    if 4 * series[0] + 16 * rows[0] <= len(data):
        copy_columns(data, 0, series[0], rows[0])


TARGETS: tuple[Callable[[bytes], object], ...] = (
    lambda data: json_kernel.count(data, DEPTHS),
    lambda data: scan(data, 50, 10_000),
    lambda data: scan_1(data, 1_000),
    lambda data: scan_2(data, 1_000),
    _texts,
    _columns,
)


def main() -> None:
    """Read as many rounds of the corpus as the argument says."""
    chance, bodies, count = random.Random(1), list(corpus()), 0
    for _ in range(int(sys.argv[1])):
        for body in bodies:
            data = damaged(body, chance)
            for target in TARGETS:
                target(data)
            count += 1
    sys.stdout.write(f"{count} bodies\n")


if __name__ == "__main__":
    main()
