"""Builds the compiled kernel into the wheel, or into the tree for an editable install.

Without a C compiler the package is built without it: every function of the kernel has a NumPy form beside it.
"""

import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = Path("src/jobmeter/kernel")
LIBRARY = KERNEL / "_kernel.so"


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """``cc`` on every C file of the kernel, into one library without a dependency on Python's own headers."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the hook's shape
        """Compile; leave the library out where that is not possible."""
        root = Path(self.root)
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None or sys.platform == "win32":
            self.app.display_warning("no C compiler: jobmeter is built without its compiled kernel, and is slower")
            return
        sources = sorted(str(path) for path in (root / KERNEL).glob("*.c"))
        flags = ["-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra"]
        library = root / LIBRARY
        partial = library.with_suffix(".part")
        abi = runpy.run_path(str(root / KERNEL / "abi.py"))["number"](root / KERNEL)
        define = f"-DJOBMETER_ABI=INT64_C({abi})"
        done = subprocess.run([compiler, *flags, define, "-o", str(partial), *sources], capture_output=True, text=True)
        if done.returncode:
            self.app.display_warning(f"the compiled kernel could not be built, jobmeter is slower:\n{done.stderr}")
            return
        partial.replace(library)
        build_data["pure_python"] = False
        # The library knows nothing of Python: one wheel serves every version of it.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
