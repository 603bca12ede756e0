"""The number of a library's interface, made from its sources: one built from other sources is not used.

The build (``hatch_build.py``) loads this file by its path, before anything that the package needs is installed.
"""

import hashlib
from pathlib import Path


def number(folder: Path) -> int:
    """A positive 63-bit number of the C sources in a folder: their names and their bytes."""
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.[ch]")):
        text = source.read_bytes()
        digest.update(f"{source.name} {len(text)}\n".encode())
        digest.update(text)
    return int.from_bytes(digest.digest()[:8], "big") >> 1
