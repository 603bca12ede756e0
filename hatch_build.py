"""Builds the page and the compiled kernel into the wheel, and the kernel into the tree for an editable install.

Without a C compiler, or with ``JOBMETER_BUILD_KERNEL=off``, the package is built without the kernel, for any platform.
Its agent and clients work. Its server does not start, and says that the kernel is missing.
"""

import os
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = Path("src/jobmeter/kernel")
LIBRARY = KERNEL / "_kernel.so"


def find_compiler() -> list[str]:
    """Return the command of a C compiler: ``CC`` of the environment, else the machine's. Empty without one."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return shlex.split(os.environ.get("CC", "")) or ([found] if found else [])


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The page by Node.js, and ``cc`` on every C file of the kernel, into one library that knows nothing of Python."""

    def _build_page(self, root: Path) -> None:
        """Build the page; leave it out where the tools are missing. An error in its source fails the build."""
        page = runpy.run_path(str(root / "web" / "build.py"))
        try:
            page["build"]()
        except page["ToolsMissingError"] as error:
            self.app.display_warning(f"the page is not built, the server will show a plain one: {error}")

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; leave the library out where that is not possible. A developer's installation fails then."""
        root = Path(self.root)
        # An editable install gets its page from `make page`; a wheel has to have it.
        if version != "editable":
            self._build_page(root)
        if os.environ.get("JOBMETER_BUILD_KERNEL", "") == "off":
            self.app.display_info("jobmeter is built without its compiled kernel, as JOBMETER_BUILD_KERNEL says")
            return
        compiler = find_compiler()
        if not compiler or sys.platform == "win32":
            missing = (
                "there is no C compiler for the compiled kernel, without which no server starts: "
                "install gcc or clang, or set CC"
            )
            if version == "editable" and sys.platform != "win32":
                raise RuntimeError(f"{missing}, or set JOBMETER_BUILD_KERNEL=off for agents and clients alone")
            self.app.display_warning(missing)
            return
        sources = sorted(str(path) for path in (root / KERNEL).glob("*.c"))
        flags = ["-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra"]
        library = root / LIBRARY
        partial = library.with_suffix(".part")
        abi = runpy.run_path(str(root / KERNEL / "abi.py"))["compute_number"](root / KERNEL)
        define = f"-DJOBMETER_ABI=INT64_C({abi})"
        done = subprocess.run([*compiler, *flags, define, "-o", str(partial), *sources], capture_output=True, text=True)
        if done.returncode and version == "editable":
            raise RuntimeError(f"the compiled kernel cannot be built from its source:\n{done.stderr}")
        if done.returncode:
            self.app.display_warning(f"the compiled kernel could not be built, no server will start:\n{done.stderr}")
            return
        partial.replace(library)
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        # The library knows nothing of Python: one wheel serves every version of it.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
