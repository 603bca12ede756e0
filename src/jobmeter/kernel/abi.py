"""The interface number of a library, computed from its sources. A library with another number is not loaded.

The build (``hatch_build.py``) loads this file by its path, before the package's dependencies are installed.
"""

import hashlib
from pathlib import Path


def compute_number(folder: Path) -> int:
    """Return a positive 63-bit hash of the names and bytes of the C sources in a folder."""
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.[ch]")):
        text = source.read_bytes()
        digest.update(f"{source.name} {len(text)}\n".encode())
        digest.update(text)
    return int.from_bytes(digest.digest()[:8], "big") >> 1
