"""Fake of Huawei's DCMI library: the compiled ``library.c``, and the files with its answers."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from tests.programs import find
from tests.support.needs import needs

SOURCE = Path(__file__).parent / "library.c"
_FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-fvisibility=hidden")
BUSY = {
    "power_info": "3105",
    "temperature": "47",
    "voltage": "84",
    "health": "0",
    "network_health": "0",
    "utilization_rate": "2 81  3 4  10 37  12 22  13 85",
    "frequency": "6 1600  7 1650  9 1800",
    "hbm_info": "65536 1600 40960 51 37",
    "ecc_info": "1  0 0  7 1  2 1  0 0",
    "faults": "",
    "processes": "",
    "cores": "20",
}
"""Answers of a busy 910B3, in DCMI's units."""


class FakeDcmi:
    """Driver of a machine with NPUs: its library, the files in /dev, and the answers of each chip.

    ``second`` limits the library to its second interface.
    """

    def __init__(self, folder: Path, chips: int, *, second: bool = False) -> None:
        needs("cc")
        self.answers, self.dev = folder / "dcmi", folder / "dev"
        self.file = folder / "libdcmi.so"
        flags = [*_FLAGS, *(["-DSECOND"] if second else [])]
        subprocess.run([str(find("cc")), *flags, "-o", str(self.file), str(SOURCE)], check=True)
        self.answers.mkdir()
        self.dev.mkdir(exist_ok=True)
        os.environ["FAKE_DCMI"] = str(self.answers)
        for chip in range(chips):
            self.set(chip, **BUSY, pcie=f"0 {chip + 1} 0", die=f"{chip + 1} 2 3 4 5")
            (self.dev / f"davinci{chip}").touch()

    def set(self, chip: int, **answers: str) -> None:
        """Set answers of a chip by call name.

        ``NAME__code`` sets the return code, and ``NAME__hangs`` makes the call hang.
        """
        folder = self.answers / str(chip)
        folder.mkdir(exist_ok=True)
        for name, text in answers.items():
            path = folder / name.replace("__", ".")
            path.with_suffix(".part").write_text(text)
            path.with_suffix(".part").replace(path)

    def unset(self, chip: int, *names: str) -> None:
        """Remove answers of a chip."""
        for name in names:
            (self.answers / str(chip) / name.replace("__", ".")).unlink(missing_ok=True)

    def remove(self, chip: int) -> None:
        """Remove a chip from the library's list."""
        shutil.rmtree(self.answers / str(chip))

    def load(self) -> ctypes.CDLL | None:
        """Load the library."""
        return ctypes.CDLL(str(self.file))

    @property
    def overlaps(self) -> int:
        """Number of calls that began during another call."""
        path = self.answers / "overlaps"
        return len(path.read_text()) if path.exists() else 0
